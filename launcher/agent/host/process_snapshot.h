// Takes a snapshot of a process that may hang: its state in the kernel, and the Python stack of a
// process that offers one (horovod/_stack.py). Uses no ptrace.
#pragma once

#include <sys/types.h>

#include <string>

namespace hvd::launcher {

// Returns one line about the process. With `with_stack`, the lines of its Python stack follow, each
// after two spaces; the call then briefly waits for the process. Empty when the process has ended.
std::string process_snapshot(pid_t pid, bool with_stack);

// "sleeping in futex_do_wait (python3 train.py)": its state, its place in the kernel and its command. Empty
// when the process has ended.
std::string process_activity_line(pid_t pid);

}  // namespace hvd::launcher
