// Runs programs of this machine: reads their output, waits for them, or replaces this process by them.
// For a process with one thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace hvd::launcher {

using VariablesOfProgram = std::vector<std::pair<std::string, std::string>>;

// All that it writes to its output and its standard error, whatever it ends with. An error says that
// it cannot be run (kNotFound: there is none), or was not done by the deadline; then it is ended.
Result<std::string> output_of(const std::vector<std::string>& command, Deadline deadline);

// This process goes on as the program; returns only why it cannot.
Status become_program(const std::vector<std::string>& command,
                      const VariablesOfProgram& environment);

// Runs it and hands on to it the signals that are for this process. Its exit code, or 128 and its
// signal's number.
Result<int> run_program(const std::vector<std::string>& command,
                        const VariablesOfProgram& environment);

}  // namespace hvd::launcher
