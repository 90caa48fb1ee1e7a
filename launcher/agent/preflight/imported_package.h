// Finds the package horovod that a Python program would import: this project's, the original, or none. Reads files and
// starts no interpreter.
#pragma once

#include <string>
#include <vector>

#include "launcher/agent/host/python_sources.h"
#include "launcher/program/program.h"

namespace hvd::launcher {

struct ImportedPackage {
  // kNone: no folder of the import path has one. kOriginal: a source of the program (python_sources.h) imports
  // horovod, and the first one is the original. kUnknown: the interpreter may search other folders.
  enum class Kind { kNone, kFound, kOriginal, kUnknown };
  Kind kind = Kind::kUnknown;
  std::string folder;  // of the import path, that has it; empty for kNone and kUnknown
};

// `interpreter` is an absolute path, and `arguments` its options and a script, -m MODULE or -c CODE.
ImportedPackage find_imported_package(const std::string& interpreter,
                                      const std::vector<std::string>& arguments,
                                      const std::string& working_directory,
                                      const Environment& environment);

// Whether a source of the program has the word horovod, but for comments.
Mention mentions_horovod(const std::string& interpreter, const std::vector<std::string>& arguments,
                         const std::string& working_directory, const Environment& environment);

// Whether a source of the program imports horovod by a statement that is not indented: others may never run.
Mention imports_horovod(const std::string& interpreter, const std::vector<std::string>& arguments,
                        const std::string& working_directory, const Environment& environment);

// Whether a source of the program imports horovod.torch.distributed, which adds the backend of torch.distributed.
Mention imports_torch_backend(const std::string& interpreter,
                              const std::vector<std::string>& arguments,
                              const std::string& working_directory, const Environment& environment);

// The version of this project's package horovod in the folder, or empty.
std::string version_of_package(const std::string& folder);

// The commands that uninstall the original in `folder` for this interpreter, in order. Where this project is installed
// beside it, the removal may take the command horovodrun along, so that one more command follows.
std::string how_to_uninstall_original(const std::string& interpreter, const std::string& folder);

}  // namespace hvd::launcher
