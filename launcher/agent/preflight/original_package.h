// Finds the original Horovod that a Python program would import in place of this project's package.
// Reads files and starts no interpreter.
#pragma once

#include <string>
#include <vector>

#include "launcher/program/program.h"

namespace hvd::launcher {

// `interpreter` is an absolute path, and `arguments` its options and a script, -m MODULE or -c
// CODE. Returns the folder of the original package if a source of the program (python_sources.h) imports
// horovod and the first package horovod of the import path is the original; else empty.
std::string find_original_package(const std::string& interpreter,
                                  const std::vector<std::string>& arguments,
                                  const std::string& working_directory,
                                  const Environment& environment);

}  // namespace hvd::launcher
