// Finds the package horovod that a Python program would import: this project's, the original, or none. Reads files and
// starts no interpreter.
#pragma once

#include <string>
#include <vector>

#include "launcher/agent/host/python_sources.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {

struct ImportedPackage {
  // kNone: no folder of the import path has the package. kOriginal: a source of the program (python_sources.h) imports
  // horovod, and the first package found is the original. kUnknown: the interpreter may search other folders.
  enum class Kind { kNone, kFound, kOriginal, kUnknown };
  Kind kind = Kind::kUnknown;
  std::string folder;  // folder of the import path with the package; empty for kNone and kUnknown
};

// Finds the package for an interpreter with an absolute path. `arguments`: its options, then a script, -m MODULE or -c
// CODE.
ImportedPackage find_imported_package(const std::string& interpreter,
                                      const std::vector<std::string>& arguments,
                                      const std::string& working_directory,
                                      const Environment& environment);

// Returns whether a source of the program contains the word horovod outside of comments.
Mention mentions_horovod(const std::string& interpreter, const std::vector<std::string>& arguments,
                         const std::string& working_directory, const Environment& environment);

// Returns whether a source of the program imports horovod by a statement without indentation. Indented statements may
// never run.
Mention imports_horovod(const std::string& interpreter, const std::vector<std::string>& arguments,
                        const std::string& working_directory, const Environment& environment);

// Returns whether a source imports horovod.torch.distributed or horovod_torch_backend, which register the
// torch.distributed backend.
Mention imports_torch_backend(const std::string& interpreter,
                              const std::vector<std::string>& arguments,
                              const std::string& working_directory, const Environment& environment);

// Returns the version of this project's package horovod in the folder, or an empty text.
std::string version_of_package(const std::string& folder);

// Returns the commands that uninstall the original in `folder` for this interpreter, in order. If this project is
// installed in the same place, the removal may also remove the command horovodrun: one more command then prints how to
// restore it.
std::string how_to_uninstall_original(const std::string& interpreter, const std::string& folder);

}  // namespace hvd::launcher
