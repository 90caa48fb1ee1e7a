// `horovodrun ps`, `horovodrun stack [PID]`: what this user's running jobs are doing. `horovodrun exec
// [PID] [--rank LIST] COMMAND`: a command beside their ranks.
#pragma once

#include <span>
#include <string>

namespace hvd::launcher {

// True when the arguments begin with one of these.
bool asks_about_jobs(std::span<const std::string> arguments);
// Prints the answer; the exit code.
int answer_about_jobs(std::span<const std::string> arguments);

}  // namespace hvd::launcher
