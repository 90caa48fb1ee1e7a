// The environments of Python that uvx, `uv tool` and pipx make for one program. Such an environment has horovodrun
// and no framework, so that a training script does not run there, but uvx puts it first on PATH.
#pragma once

#include <string>

namespace hvd::launcher {

// Whether uvx, `uv tool` or pipx has made the environment `prefix` for horovodrun alone: without access to the
// system's packages, and without a framework (--with, inject and extras add one).
bool is_tool_environment(const std::string& prefix);

// Where uvx has put the environment first on PATH, takes it out of this process's environment. The ranks' Python is
// then that of VIRTUAL_ENV, else of .venv in the working directory, else the first one on PATH. Changes nothing where
// there is no other Python. Only before there are threads.
void leave_tool_environment(const std::string& prefix);

}  // namespace hvd::launcher
