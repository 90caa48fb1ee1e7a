// Secrets in files and pipes, and the one rule for what may hold them: a regular file of the effective
// user that is closed to all others (mode & 077 = 0), a regular file of root's that a group may read
// (mode & 027 = 0), or an anonymous pipe. The opened file is judged, not its name. Blocks; never
// shows a byte of a secret.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/secrets/secret.h"

namespace hvd {

// The writer of a pipe has this long to write all and to close it.
constexpr double kPipeSeconds = 5;

// The whole content, at most `limit` bytes. `shown` names the file in errors.
Result<std::string> read_private_file(const std::string& path, std::string_view shown, size_t limit,
                                      Deadline deadline = Deadline::after_seconds(kPipeSeconds));

// The token of a job, at least 32 hexadecimal digits, from --token-file or --token-fd: exactly one of
// both is given. The descriptor is closed, unless it is a standard stream.
Result<Secret> read_token(const std::string& path, std::optional<int> fd,
                          Deadline deadline = Deadline::after_seconds(kPipeSeconds));

// Creates a token file with mode 0600, in a directory that no other user can write. Fails when there
// is a file of this name.
Status create_token_file(const std::string& path);

}  // namespace hvd
