// Names of signals, and the state of signals that a started program must not inherit. Any thread.
#pragma once

#include <string>
#include <vector>

namespace hvd {

// "SIGTERM", or the number of a signal without a name.
std::string signal_name(int number);
// "15 (SIGTERM)", or the number of a signal without a name.
std::string signal_text(int number);

// The signals that this process ignores: a program that it executes would ignore them too.
std::vector<int> ignored_signals();
// Gives these signals their default action, and blocks none. For a child between fork and exec.
void reset_signals(const std::vector<int>& ignored);

}  // namespace hvd
