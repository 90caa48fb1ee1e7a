// Finds the file that starts a command on this host. A command may begin with a Python script. A missing script is
// reported before any process starts. Reads the file system and changes nothing. Any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {

struct CommandFile {
  std::string path;  // path of the file to execute
  // The program's name and its arguments. If Python runs NAME.py, Python's path comes first.
  std::vector<std::string> command;
};

struct CommandPlace {
  std::string working_directory;
  std::string search_path;
  const Environment& environment;  // VIRTUAL_ENV and CONDA_PREFIX name the active environment
  std::string installed_python;  // Python of the environment that contains horovodrun; may be empty
  bool lacks_stage = false;      // the script may exist only on other hosts; --stage would copy it
};

// Finds the file of a command. If the first word is NAME.py, searches the working directory, and then the search path.
// The script is executed directly if it has execute permission and "#!", or if it is on the search path. Otherwise,
// python_for_scripts() executes the script. Also returns an error if the script in the arguments of Python or of a
// shell is missing.
Result<CommandFile> find_command(const std::vector<std::string>& command,
                                 const CommandPlace& place);

// Returns the Python for scripts in this place. An error names an environment that this host lacks.
Result<std::string> python_for_scripts(const CommandPlace& place);

// The program that a Python command runs.
struct PythonProgram {
  enum class Kind { kNone, kScript, kModule, kCode };
  Kind kind = Kind::kNone;         // kNone: standard input, or only --version and the like
  std::string text;                // path of the script, name of the module, or code
  bool keeps_path = true;          // no option changes the import path (-E, -I, -P, -s, -S)
  std::string ignores_pythonpath;  // the option that ignores PYTHONPATH: -E or -I; may be empty
};

// Parses the arguments of a Python, without its own name. Pure.
PythonProgram program_of_python(std::span<const std::string> arguments);
// Returns the script in the arguments of a shell; empty for code or standard input. Pure.
std::optional<std::string> script_of_shell(std::span<const std::string> arguments);

}  // namespace hvd::launcher
