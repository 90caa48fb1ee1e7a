// The commands `horovodrun ps [--json] [NAME]`, `stack [--native] [NAME]` and `metrics [NAME]` show the state of the
// running jobs of this user. `exec [NAME] [--rank LIST] COMMAND` runs a command beside the ranks of a job. `resize
// [NAME] N` and `remove [NAME] HOST|RANK` change the ranks of an elastic job. The commands `attach`, `logs`, `stop` and
// `wait` are in launcher/state.
#pragma once

#include <span>
#include <string>

namespace hvd::launcher {

// Returns whether the arguments begin with one of these commands.
bool asks_about_jobs(std::span<const std::string> arguments);
// Prints the answer; returns the exit code.
int answer_about_jobs(std::span<const std::string> arguments);

}  // namespace hvd::launcher
