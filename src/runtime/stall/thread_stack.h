// Reads the stack of this process's main thread from inside the process, without ptrace. An
// interpreter may write its stack on a signal (hvd_offer_stack); otherwise the kernel's view in /proc
// is used. The stall inspector calls it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hvd::runtime {

// The way to get a thread's stack: `signal` makes the receiving thread write its stack into a pipe,
// and `fd` is the pipe's read end. Both belong to the interpreter, for the life of the process.
struct StackChannel {
  int signal = 0;  // 0: none
  int fd = -1;
  void* handler = nullptr;  // handler of the signal at the time of opening
};

// Checks a channel: the signal must have a handler, since most signals end a process without one.
Result<StackChannel> open_stack_channel(int signal, int fd);

// Returns the stack of the main thread, one line per call, innermost first. Empty without a
// channel, if its signal has another handler by now, or if the thread does not answer within a
// short time. Waits at most that long; one thread at a time.
std::string main_thread_stack(const StackChannel& channel);

// Returns the user's line in such a stack, "train.py:88 in main": the innermost line outside
// installed packages, or else the innermost one; empty without a line. Pure.
std::string user_place(std::string_view stack);

// The kernel's information on the main thread: its name and its current system call.
std::string main_thread_note();

}  // namespace hvd::runtime
