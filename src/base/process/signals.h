// Names of signals, and the state of signals that a started program or thread must not inherit. Any thread.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace hvd {

// "SIGTERM", or the number of a signal without a name.
std::string signal_name(int number);
// "15 (SIGTERM)", or the number of a signal without a name.
std::string signal_text(int number);

// For a program's first lines: it blocks no signal, whatever its parent blocked, and a write beyond the limit of file
// sizes is an error and does not end it.
void set_up_signals();
// For the execution of a user's program, which such a write ends as usual.
void set_back_signals();

// The signals that this process ignores: a program that it executes would ignore them too.
std::vector<int> ignored_signals();
// Gives these signals their default action, and blocks none. For a child between fork and exec.
void reset_signals(const std::vector<int>& ignored);

// Blocks all signals of this thread while it lives. A thread that is started in that time leaves signals to the
// other threads of the program.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked();
  ~AllSignalsBlocked();
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace hvd
