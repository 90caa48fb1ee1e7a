// Finds the file that starts a command on this host. A script of Python needs no interpreter before it, and a
// script that is missing is an error before any process starts. Reads the file system and changes nothing. Any
// thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/program/program.h"

namespace hvd::launcher {

struct CommandFile {
  std::string path;  // of the file to execute
  std::vector<std::string>
      command;  // its arguments, its name included: with the Python before NAME.py
};

// Places where the command runs.
struct CommandPlace {
  std::string working_directory;
  std::string search_path;
  const Environment& environment;  // VIRTUAL_ENV and CONDA_PREFIX name the active environment
  std::string installed_python;    // of the environment that horovodrun is installed in, or empty
  bool lacks_stage = false;        // another host may have the script: --stage would copy it to all
};

// A first word NAME.py is a file of the working directory, or else one on the search path. With execute
// permission and "#!" it runs as it is, otherwise by the Python of the active environment, of horovodrun's
// environment, or of the search path. An error also names a script behind python3 or sh that does not exist.
Result<CommandFile> find_command(const std::vector<std::string>& command,
                                 const CommandPlace& place);

// The Python for scripts there. An error names an environment that is not on this host.
Result<std::string> python_for_scripts(const CommandPlace& place);

// The program of a Python.
struct PythonProgram {
  enum class Kind { kNone, kScript, kModule, kCode };
  Kind kind = Kind::kNone;  // kNone: standard input, or only a question such as --version
  std::string text;         // path of the script, name of the module, or code
  bool keeps_path = true;   // no option changes where imports are searched (-E, -I, -P, -s, -S)
  std::string
      ignores_pythonpath;  // the option by which it does: -E or -I; empty: it reads PYTHONPATH
};

// Reads the arguments of a Python, without its own name. Pure.
PythonProgram program_of_python(std::span<const std::string> arguments);
// The script among the arguments of a shell; nothing for code or for standard input. Pure.
std::optional<std::string> script_of_shell(std::span<const std::string> arguments);

}  // namespace hvd::launcher
