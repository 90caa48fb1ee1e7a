// `horovodrun report [FILE] [FLAGS] [COMMAND]`: one text file for a bug report, without secrets.
#pragma once

#include <span>
#include <string>

namespace hvd::launcher {

// True when the arguments begin with "report".
bool asks_for_report(std::span<const std::string> arguments);
// Tries what --check-build tries and writes the file, which only this user can read. An existing file
// stays as it is. The exit code.
int write_report(std::span<const std::string> arguments);

}  // namespace hvd::launcher
