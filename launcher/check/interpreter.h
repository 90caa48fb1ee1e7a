// Selects the Python interpreter whose frameworks --check-build and `horovodrun report` test. Reads files and changes
// nothing.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

// Returns an error if the command's program is not on this machine. With --verbose or --json, a missing Python is not
// an error, because the table of results reports it.
Status check_named_program(const Options& options);

// Returns the path of the first interpreter that exists: the command's Python; the Python of the active venv or conda
// environment; the Python of the environment that contains this executable, or for which pip installed it; python3 in
// PATH. If none exists, returns the name python3.
std::string choose_interpreter(const Options& options);

}  // namespace hvd::launcher
