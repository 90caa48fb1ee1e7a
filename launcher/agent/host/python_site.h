// Finds the folders from which a Python interpreter imports installed packages. Reads files and starts no
// interpreter. Any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/program/program.h"

namespace hvd::launcher {

struct PythonSite {
  // In the order of sys.path, without the program's own folder. All of them exist.
  std::vector<std::filesystem::path> folders;
  // The subset of `folders` that PYTHONPATH and .pth files name: they may hold the user's own modules.
  std::vector<std::filesystem::path> named;
  // False where the interpreter may have more folders: one without its standard library beside it, one under
  // PYTHONHOME, or one whose sitecustomize, or code in a .pth file, adds folders.
  bool is_whole = true;
};

// The folders of PYTHONPATH, a virtual environment, the user and the interpreter, and those that their .pth
// files add. `interpreter` is an absolute path, and relative entries of PYTHONPATH are below
// `working_directory`. Options of the interpreter (-I, -s, ...) do not count.
PythonSite python_site(const std::filesystem::path& interpreter,
                       const std::string& working_directory, const Environment& environment);

// Reads at most 1 MiB; returns nothing unless the path is a regular file.
std::string text_of_file(const std::filesystem::path& path);

}  // namespace hvd::launcher
