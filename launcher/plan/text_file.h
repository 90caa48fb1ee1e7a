// Reads and makes small text files that the user named. Errors are one sentence.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace hvd::launcher {

// `what` is for messages: "hostfile". The path "-" is standard input. More than 64 MiB are an error.
Result<std::string> read_text_file(const std::string& path, std::string_view what);

// Makes a file with these permissions, lowered by the umask. `what` is for messages: "the report". A file or link of
// that name stays as it is, and is an error.
Status create_text_file(const std::string& path, std::string_view what, std::string_view text,
                        mode_t mode);

}  // namespace hvd::launcher
