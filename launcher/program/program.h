// Finds the file of a command's program on this host, and the reason why it cannot run, before any
// process starts. The agent checks the ranks' program with these functions, and `--check-build` finds
// Python with them. Reads the file system and changes nothing. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/process/exec_strings.h"
#include "base/result.h"

namespace hvd::launcher {

// Whether the file name of a path is python, python3, python3.11, ...
bool is_python(std::string_view path);

// The word of a command that names its Python, or null. For `horovodrun --check-build ... -- PYTHON`, the Python that is
// checked.
std::string* python_word(std::vector<std::string>& command);

// Whether the folder has a package horovod and no other one: on an import path it hides nothing else.
bool has_horovod_alone(const std::string& folder);

// Parses an environment as the kernel lays it out: "NAME=VALUE" texts, each with a trailing NUL.
Environment parse_environment(std::string_view text);
// Returns the value of a variable, or empty when it is not set.
std::string_view value_of(const Environment& environment, std::string_view name);

Status check_working_directory(const std::string& directory);

// Returns the path to execute. A `program` with a slash is a path, relative to the working directory.
// Otherwise it is the first executable file of that name in the directories of `search_path`.
Result<std::string> find_program(const std::string& program, const std::string& working_directory,
                                 std::string_view search_path);

// Returns the interpreter that the first line of a script names, or empty when that file is not found.
// For a file that is not a script, returns the path itself.
std::string interpreter_of(const std::string& path, const std::string& working_directory,
                           std::string_view search_path);
// Returns the options behind that interpreter in the first line of a script, such as -I.
std::vector<std::string> options_of_interpreter(const std::string& path);
// Returns the Python interpreter that runs the file, or empty when Python does not run it. Follows
// scripts named python that start the real interpreter.
std::string python_of(const std::string& path, const std::string& working_directory,
                      std::string_view search_path);

}  // namespace hvd::launcher
