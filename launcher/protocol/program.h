// Finds the file of a command's program on this host, or the reason why the program cannot run, before any process
// starts. Reads the file system and changes nothing. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/process/spawn.h"
#include "base/result.h"

namespace hvd::launcher {

// Returns whether the file name of a path is python, python3, python3.11, ...
bool is_python(std::string_view path);

// Returns the word of a command that names its Python, or null. For `horovodrun --check-build ... -- PYTHON`, returns
// the tested Python.
std::string* python_word(std::vector<std::string>& command);

// Returns whether the folder contains the package horovod, and otherwise only its PyTorch backend and __pycache__.
bool has_horovod_alone(const std::string& folder);

// Parses an environment in the kernel's format: "NAME=VALUE" texts, each with a trailing NUL.
Environment parse_environment(std::string_view text);
// Returns the value of a variable, or an empty text if it is unset.
std::string_view value_of(const Environment& environment, std::string_view name);

Status check_working_directory(const std::string& directory);

// Returns the path to execute. A `program` with a slash is a path, relative to the working directory.
// Otherwise it is the first executable file of that name in the directories of `search_path`.
Result<std::string> find_program(const std::string& program, const std::string& working_directory,
                                 std::string_view search_path);

// Returns the path of the interpreter in the first line of a script; empty if env does not find it on the search path.
// For a file that is not a script, returns the file's path.
std::string interpreter_of(const std::string& path, const std::string& working_directory,
                           std::string_view search_path);
// Returns the options after the interpreter in the first line of a script, for example -I.
std::vector<std::string> options_of_interpreter(const std::string& path);
// Returns the Python interpreter that runs the file, or an empty text if Python does not run it. A script that is
// itself named python counts as the interpreter.
std::string python_of(const std::string& path, const std::string& working_directory,
                      std::string_view search_path);

}  // namespace hvd::launcher
