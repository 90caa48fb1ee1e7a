// Finds the original Horovod that a Python program would import in place of this project's package.
// Reads files and starts no interpreter: an import that only running the program shows is not found.
#pragma once

#include <string>
#include <vector>

#include "launcher/program/program.h"

namespace hvd::launcher {

// `arguments` are those of the interpreter, which has an absolute path: options, a script or -m MODULE or
// -c CODE. Returns the folder that holds the package, if the program imports horovod in an unindented
// line and the first folder of the import path that has a package horovod has the original; else
// empty.
std::string find_original_package(const std::string& interpreter,
                                  const std::vector<std::string>& arguments,
                                  const std::string& working_directory,
                                  const Environment& environment);

}  // namespace hvd::launcher
