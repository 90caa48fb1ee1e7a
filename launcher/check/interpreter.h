// Finds the Python interpreter whose frameworks --check-build tests. Reads files and changes nothing.
#pragma once

#include <string>

#include "launcher/cli/options.h"

namespace hvd::launcher {

// That of the command, where it is one of Python; else of the virtual environment that is active; else
// the one that pip installed this executable for; else PATH's. A path, or the name that has none.
std::string choose_interpreter(const Options& options);

}  // namespace hvd::launcher
