// Where a process is, for who wonders why it does not go on: what the kernel tells, and the Python
// stack of a process that offers it. Traces nobody.
#pragma once

#include <sys/types.h>

#include <string>

namespace hvd::launcher {

// A line about the process, and lines, each begun with two spaces, about its stack when that is
// wanted, for which it waits a moment. Empty when the process is gone.
std::string whereabouts(pid_t pid, bool with_stack);

}  // namespace hvd::launcher
