// Runs programs of this machine: reads their output, waits for them, or replaces this process by
// them. For a process with one thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace hvd::launcher {

using VariablesOfProgram = std::vector<std::pair<std::string, std::string>>;

// Returns everything that the program writes to standard output and standard error, with any exit status.
// An error: the program cannot be run (kNotFound: it does not exist), or was ended at the deadline.
Result<std::string> output_of(const std::vector<std::string>& command, Deadline deadline);

// Replaces this process by the program; returns only an error.
Status become_program(const std::vector<std::string>& command,
                      const VariablesOfProgram& environment);

// Runs the program and forwards this process's signals to it. Returns its exit code, or 128 plus
// the number of the signal that killed the program.
Result<int> run_program(const std::vector<std::string>& command,
                        const VariablesOfProgram& environment);

}  // namespace hvd::launcher
