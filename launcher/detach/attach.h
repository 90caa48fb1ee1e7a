// The command `horovodrun attach [NAME]`, which shows the output of a detached job, waits for its end and
// returns its exit code. `look_inside` calls it.
#pragma once

#include <span>
#include <string>

namespace hvd::launcher {

// `arguments`: behind "attach". Returns the exit code.
int attach(std::span<const std::string> arguments);
// Removes the spools of jobs that ended a week ago.
void remove_old_spools();

}  // namespace hvd::launcher
