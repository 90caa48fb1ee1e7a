// Finds the Python interpreter whose frameworks --check-build and `horovodrun report` test. Both call it. Reads
// files and changes nothing.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/cli/options.h"

namespace hvd::launcher {

// Refuses a command whose program is not on this machine, unless --verbose or --json shows that of a Python.
Status check_named_program(const Options& options);

// Returns the path of the first of these: the Python of the command; the Python of the active environment of venv or
// conda; the Python of the environment that has this executable, or for which pip installed it; python3 in PATH.
// Without any, returns that name.
std::string choose_interpreter(const Options& options);

}  // namespace hvd::launcher
