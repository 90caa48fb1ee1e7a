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
      line;  // "pid 12, sleeping, in futex_do_wait: python3 train.py"; empty when the process has ended
  std::string stack;  // the lines that it offers, each with a newline; empty where it offers none
};

// `with_stack`: the call then briefly waits for the process.
ProcessSnapshot process_snapshot(pid_t pid, bool with_stack);

// "sleeping in futex_do_wait (python3 train.py)": its state, its place in the kernel and its command. Empty
// when the process has ended.
std::string process_activity_line(pid_t pid);

// Returns the Python processes of the list that have no other Python process of the list as ancestor.
std::vector<pid_t> topmost_pythons(const std::vector<pid_t>& processes);

}  // namespace hvd::launcher
