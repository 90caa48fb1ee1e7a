// Finds the Python interpreter whose frameworks --check-build and `horovodrun report` test. Both call it. Reads
// files and changes nothing.
#pragma once

#include <string>

#include "launcher/cli/options.h"

namespace hvd::launcher {

// Returns the path of the first of these: the command, if it is a Python; the Python of the active virtual
// environment; the Python for which pip installed this executable; python3 in PATH. Without any, returns that name.
std::string choose_interpreter(const Options& options);

}  // namespace hvd::launcher
