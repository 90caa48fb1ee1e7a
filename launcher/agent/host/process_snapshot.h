// Takes a snapshot of a process that may hang: its state in the kernel, and its Python stack if the process provides
// one (horovod/_stack.py). Uses no ptrace.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace hvd::launcher {

struct ProcessSnapshot {
  pid_t pid = -1;
  std::string
      line;  // "pid 12, sleeping, in futex_do_wait: python3 train.py"; empty if the process has ended
  std::string stack;  // lines from the process, each with a newline; empty if it provides none
};

// `with_stack`: also requests the Python stack, and briefly waits for it.
ProcessSnapshot process_snapshot(pid_t pid, bool with_stack);

// Returns the process's state, kernel function and command: "sleeping in futex_do_wait (python3 train.py)". Empty if
// the process has ended.
std::string process_activity_line(pid_t pid);

// Returns the Python processes in the list that have no Python ancestor in the list.
std::vector<pid_t> topmost_pythons(const std::vector<pid_t>& processes);

}  // namespace hvd::launcher
