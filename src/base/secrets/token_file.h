// Reads secrets from files and pipes, and enforces the one rule for them: a regular file of the
// effective user without access for other users (mode & 077 = 0), a regular file of root that a
// group may read (mode & 027 = 0), or an anonymous pipe. Checks the opened file, not its name.
// Blocks; never prints a byte of a secret.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/secrets/secret.h"

namespace hvd {

// The writer of a pipe must write everything and close the pipe within this time.
constexpr double kPipeSeconds = 5;

// Reads the whole file, at most `limit` bytes. Errors name the file as `shown`.
Result<std::string> read_private_file(const std::string& path, std::string_view shown, size_t limit,
                                      Deadline deadline = Deadline::after_seconds(kPipeSeconds));

// Reads a job's token, at least 32 hexadecimal digits, from --token-file or --token-fd; the caller
// passes exactly one of them. Closes the descriptor unless it is a standard stream.
Result<Secret> read_token(const std::string& path, std::optional<int> fd,
                          Deadline deadline = Deadline::after_seconds(kPipeSeconds));

// Creates a token file with mode 0600, in a directory that no other user can write. Fails if the
// file exists.
Status create_token_file(const std::string& path);

}  // namespace hvd
