// A snapshot of a process that may hang: its state as the kernel reports it, and the Python stack of
// a process that offers one (horovod/_stack.py). Uses no ptrace.
#pragma once

#include <sys/types.h>

#include <string>

namespace hvd::launcher {

// One line about the process. With `with_stack`, lines of its Python stack follow, each after two
// spaces; this waits a moment for the process. Empty when the process is gone.
std::string process_snapshot(pid_t pid, bool with_stack);

}  // namespace hvd::launcher
