// `horovodrun report [FILE] [FLAGS] [COMMAND]`: one text file for a bug report, without secrets.
#pragma once

#include <span>
#include <string>

namespace hvd::launcher {

bool asks_for_report(std::span<const std::string> arguments);
// Runs the tests of --check-build and writes the file, which only this user can read. Never
// overwrites a file. Returns the exit code.
int write_report(std::span<const std::string> arguments);

}  // namespace hvd::launcher
