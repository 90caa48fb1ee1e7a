// `horovodrun top [--once] [--json] [NAME]`: shows a running job, and queries its launcher once a second. Sends no
// signal to the job.
#pragma once

#include <span>
#include <string>

namespace hvd::launcher {

bool asks_for_top(std::span<const std::string> arguments);
// Returns the exit code.
int show_top(std::span<const std::string> arguments);

}  // namespace hvd::launcher
