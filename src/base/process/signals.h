// Names signals, and resets signal state that a started program or thread must not inherit. Any thread.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace hvd {

// Returns "SIGTERM", or the number of a signal without a name.
std::string signal_name(int number);
// Returns "15 (SIGTERM)", or the number of a signal without a name.
std::string signal_text(int number);

// Call this first in a program. Unblocks all signals, which the parent may have blocked, and ignores
// SIGXFSZ: a write beyond the file size limit then fails with an error.
void set_up_signals();
// Call this before executing a user's program: a write beyond the limit then ends the program as usual.
void set_back_signals();

// Returns whether this process ignores the signal. For example, nohup starts a program with SIGHUP ignored.
bool is_ignored(int signal);
// Returns the signals that this process ignores. An executed program would ignore them too.
std::vector<int> ignored_signals();
// Gives these signals their default action, and unblocks all signals. For a child between fork and exec.
void reset_signals(const std::vector<int>& ignored);

// Blocks all signals of this thread while the object exists. A thread started meanwhile inherits the mask, so the
// program's other threads receive the signals.
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
