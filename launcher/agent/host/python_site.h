// Finds the folders from which a Python interpreter imports installed packages. Reads files and starts no
// interpreter. Any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/protocol/program.h"

namespace hvd::launcher {

struct PythonSite {
  // Listed in the order of sys.path, without the program's own folder. All folders exist.
  std::vector<std::filesystem::path> folders;
  // The subset of `folders` that PYTHONPATH and .pth files name: they may hold the user's own modules.
  std::vector<std::filesystem::path> named;
  // False if the interpreter may have more folders: for example, PYTHONHOME is set, or sitecustomize or code in a .pth
  // file may add folders.
  bool is_whole = true;
};

// Returns the folders of PYTHONPATH, of a virtual environment, of the user and of the interpreter, and the folders that
// .pth files in these folders add. `interpreter` is an absolute path. Entries of PYTHONPATH may be relative to
// `working_directory`. Ignores options of the interpreter (-I, -s, ...).
PythonSite python_site(const std::filesystem::path& interpreter,
                       const std::string& working_directory, const Environment& environment);

// Returns at most 1 MiB of a file. Returns an empty text if the path is not a regular file.
std::string text_of_file(const std::filesystem::path& path);

}  // namespace hvd::launcher
