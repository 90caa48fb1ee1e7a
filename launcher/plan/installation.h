// Finds the other parts of this horovodrun's build or installation: agent, Python package, libraries.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

// The folder of the running executable.
std::string executable_folder();

// horovod-agent: beside the executable, or in ../libexec/horovod. An error names both places.
Result<std::string> find_agent(const std::string& folder);

// The first of `candidates` that exists, or empty.
std::string first_existing(const std::vector<std::string>& candidates);

// The place of libhorovod.so.1 in an installation (CMAKE_INSTALL_LIBDIR).
std::string installed_library(const std::string& folder);

// libhorovod.so.1: `chosen` (HOROVOD_LIBRARY) when it is not empty, else as installed, as built, or in
// the wheel that has this executable; empty when there is none.
std::string find_library(const std::string& folder, const std::string& chosen);

// The folder with bin and lib in which this executable is installed: PREFIX of PREFIX/bin and of
// PREFIX/lib/python3.N/site-packages/horovodrun/bin, where a wheel has it.
std::string installation_prefix(const std::string& folder);

// The interpreter that pip or uv installed this executable for, or empty; also empty in the environment of a tool
// (is_tool_environment).
std::string find_python(const std::string& folder);

// The Python of the environment (of venv or conda) in which this executable is installed, or empty. Empty for the
// environment of a tool.
std::string find_environment_python(const std::string& folder);

// The folder to put on PYTHONPATH (as built, in the wheel, or HVD_PYTHON_DIR of the installation), or empty.
std::string find_python_package(const std::string& folder);

// Whether uvx, `uv tool` or pipx has made the environment `prefix` for horovodrun alone: without access to the
// system's packages, and without a framework (--with, inject and extras add one).
bool is_tool_environment(const std::string& prefix);

// Where uvx has put the environment first on PATH, takes it out of this process's environment. The ranks' Python is
// then that of VIRTUAL_ENV, else of .venv in the working directory, else the first one on PATH. Changes nothing where
// there is no other Python. Only before there are threads.
void leave_tool_environment(const std::string& prefix);

}  // namespace hvd::launcher
