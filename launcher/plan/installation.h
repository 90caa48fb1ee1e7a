// Finds the other parts of this horovodrun's build or installation: agent, Python package, libraries.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

std::string executable_folder();

// Returns the path of horovod-agent: next to the executable, or in ../libexec/horovod. An error names both paths.
Result<std::string> find_agent(const std::string& folder);

// Returns the first existing path of `candidates`, or an empty text.
std::string first_existing(const std::vector<std::string>& candidates);

// Returns the path of libhorovod.so.1 in an installation (CMAKE_INSTALL_LIBDIR).
std::string installed_library(const std::string& folder);

// Returns the path of libhorovod.so.1: `chosen` (HOROVOD_LIBRARY) if not empty; else the first that exists of the
// installed library, the built one, and the one in this executable's wheel. Empty if none exists.
std::string find_library(const std::string& folder, const std::string& chosen);

// Returns the installation's folder with bin and lib: PREFIX for an executable in PREFIX/bin, or in a
// wheel's PREFIX/lib/python3.N/site-packages/horovodrun/bin.
std::string installation_prefix(const std::string& folder);

// Returns the interpreter for which pip or uv installed this executable. Empty without such an interpreter, and if
// is_tool_environment() holds for its environment.
std::string find_python(const std::string& folder);

// Returns the Python of the environment (venv or conda) in which this executable is installed. Empty without such an
// environment, and if is_tool_environment() holds for the environment.
std::string find_environment_python(const std::string& folder);

// Returns the folder for PYTHONPATH (of the build, the wheel, or HVD_PYTHON_DIR of the installation); may be empty.
std::string find_python_package(const std::string& folder);

// Returns whether uvx, `uv tool` or pipx has created the environment `prefix` only for horovodrun. Such an environment
// has no access to the system's packages, and no framework unless the user has added one (--with, inject, extras).
bool is_tool_environment(const std::string& prefix);

// Removes an environment that uvx has put first on PATH from this process's environment. The ranks' Python is then that
// of VIRTUAL_ENV, else of .venv in the working directory, else the first one on PATH. Does nothing if no other Python
// exists. Call before starting threads.
void leave_tool_environment(const std::string& prefix);

}  // namespace hvd::launcher
