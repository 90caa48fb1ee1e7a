// Reads and creates small text files that the user named. An error is one sentence.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace hvd::launcher {

// `what` is for messages: "hostfile". The path "-" is standard input. More than 64 MiB is an error.
Result<std::string> read_text_file(const std::string& path, std::string_view what);

// Creates a file with these permissions, reduced by the umask. `what` is for messages: "the
// report". An existing file or link stays unchanged, and is an error.
Status create_text_file(const std::string& path, std::string_view what, std::string_view text,
                        mode_t mode);

}  // namespace hvd::launcher
