// Reads a small text file that the user named. Returns one sentence when it cannot be read.
#pragma once

#include <string>

#include "base/result.h"

namespace hvd::launcher {

// `what` is for messages: "hostfile". The path "-" is standard input. More than 64 MiB are an error.
Result<std::string> read_text_file(const std::string& path, std::string_view what);

}  // namespace hvd::launcher
