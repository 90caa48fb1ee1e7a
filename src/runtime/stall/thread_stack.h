// Reads the stack of this process's main thread from inside the process, without ptrace. The source is an interpreter
// that writes its stack on a signal (hvd_offer_stack), or else the kernel's information in /proc.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hvd::runtime {

// A signal that makes the receiving thread write its stack into a pipe, and `fd`, the pipe's read
// end. Signal and pipe belong to the interpreter until the process ends.
struct StackChannel {
  int signal = 0;  // 0: none
  int fd = -1;
  void* handler = nullptr;  // handler of the signal at the time of opening
};

// Checks a channel: the signal must have a handler, since most signals end a process without one;
// `fd` must be non-blocking.
Result<StackChannel> open_stack_channel(int signal, int fd);

// Returns the stack of the main thread, one line per call, innermost first. Empty without a channel, after a change of
// the signal's handler, or if the thread does not reply within a short time. Waits at most this time. One thread at a
// time.
std::string main_thread_stack(const StackChannel& channel);

// Returns the user's line in a stack of main_thread_stack(), for example "train.py:88 in main": the innermost line
// outside installed packages, or else the innermost line; empty without a line. Pure.
std::string user_place(std::string_view stack);

// Returns the kernel's information on the main thread: name and current system call.
std::string main_thread_note();

}  // namespace hvd::runtime
