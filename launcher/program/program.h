// What a command means on this host: which file it is, and every reason why it could not run,
// found before anything starts. Reads the file system and changes nothing.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

using Environment = std::vector<std::pair<std::string, std::string>>;

// Whether a path's last part is python, python3, python3.11, ...
bool is_python(std::string_view path);

// Lays `over` upon `base`; a name that occurs twice keeps its last value.
Environment merged(Environment base, const Environment& over);
// Empty when there is none.
std::string_view value_of(const Environment& environment, std::string_view name);

Status check_working_directory(const std::string& directory);

// The path to execute: `program` itself when it holds a slash (seen from the working directory),
// else the first executable file of that name in the directories of `search_path`.
Result<std::string> find_program(const std::string& program, const std::string& working_directory,
                                 std::string_view search_path);

// The program that runs a script, as its first line says; of anything else the path itself. Empty
// where it is not found.
std::string interpreter_of(const std::string& path, const std::string& working_directory,
                           std::string_view search_path);
// The Python that runs the file, which is one or a script for one; else empty. What is called python
// may itself be a script that finds the real one.
std::string python_of(const std::string& path, const std::string& working_directory,
                      std::string_view search_path);

}  // namespace hvd::launcher
