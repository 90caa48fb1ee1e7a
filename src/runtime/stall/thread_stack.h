// Reads the stack of this process's main thread from inside the process, without ptrace. An
// interpreter may write its stack on a signal (hvd_offer_stack); otherwise the kernel's view in /proc
// is used. The stall inspector calls it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hvd::runtime {

// How to get the stack of a thread: `signal` makes the thread that receives it write its stack into a pipe,
// and `fd` is the read end of the pipe. Both belong to the interpreter, for the life of the process.
struct StackChannel {
  int signal = 0;  // 0: none
  int fd = -1;
  void* handler = nullptr;  // handler of the signal when the channel was opened
};

// Checks a channel: the signal must be handled, since most kill when they are not.
Result<StackChannel> open_stack_channel(int signal, int fd);

// The stack of the main thread, innermost call first, a line each. Empty when there is no channel,
// when its signal has another handler by now, or when the thread does not answer within a moment.
// Waits at most that long; one thread at a time.
std::string main_thread_stack(const StackChannel& channel);

// The user's line in such a stack, as "train.py:88 in main": the innermost one outside installed packages, else the
// innermost one; empty without a line. Pure.
std::string user_place(std::string_view stack);

// The kernel's information on the main thread: its name and its current system call.
std::string main_thread_note();

}  // namespace hvd::runtime
