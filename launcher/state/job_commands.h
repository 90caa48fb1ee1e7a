// The commands `horovodrun ps -a`, `stop`, `wait`, `logs` and `attach`, which read the records of jobs. Each returns
// the exit code; `words` are the words after the command.
#pragma once

#include <span>
#include <string>

#include "launcher/state/job_choice.h"

namespace hvd::launcher {

int list_all_jobs(bool is_json);
int stop_job(std::span<const std::string> words);
int wait_for_job(std::span<const std::string> words);
int show_log(std::span<const std::string> words);
// Prints the last lines of the log and all later lines. The exit code is that of the job.
int attach(std::span<const std::string> words);

// Returns the table of `ps -a`, with the newest job last. Pure.
std::string jobs_as_table(const StateView& view);
// Returns one JSON object per line. Pure.
std::string jobs_as_json(const StateView& view);

}  // namespace hvd::launcher
