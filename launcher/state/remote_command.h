// Runs a command of horovodrun on the machine of a job's launcher: there alone its process can be reached.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/state/job_choice.h"

namespace hvd::launcher {

// The command line: by srun where the launcher runs on a node of a job of Slurm, else by ssh. `horovodrun`: its path, the
// same there. `on_terminal`: the command gets a terminal there.
std::vector<std::string> remote_command_line(const JobRecord& record, const std::string& horovodrun,
                                             const std::string& state_folder,
                                             std::vector<std::string> words, bool on_terminal);
// Replaces this process by `horovodrun WORDS` there. Returns only an error, as where another machine has sent the
// command to this one.
Status run_there(const JobRecord& record, const StateView& view, std::vector<std::string> words);

}  // namespace hvd::launcher
