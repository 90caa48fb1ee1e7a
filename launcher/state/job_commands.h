// The commands `horovodrun ps -a`, `stop`, `wait`, `logs` and `attach`, which read the records of jobs. `look_inside` calls them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "launcher/state/job_choice.h"

namespace hvd::launcher {

// `words`: behind the command. All return the exit code.
int list_all_jobs(bool is_json);
int stop_job(std::span<const std::string> words);
int wait_for_job(std::span<const std::string> words);
int show_log(std::span<const std::string> words);
// The last lines of the log and what follows; returns the exit code of the job.
int attach(std::span<const std::string> words);

// The table of `ps -a`, newest job last. Pure.
std::string jobs_as_table(const StateView& view);
// One object per line. Pure.
std::string jobs_as_json(const StateView& view);

}  // namespace hvd::launcher
