// `horovodrun top [--once] [--json] [NAME]`: shows a running job, and asks its launcher once a second for as long as it
// is shown. Sends the job no signal.
#pragma once

#include <span>
#include <string>

namespace hvd::launcher {

bool asks_for_top(std::span<const std::string> arguments);
// Returns the exit code.
int show_top(std::span<const std::string> arguments);

}  // namespace hvd::launcher
