// The secret of a job from a file: hexadecimal digits that nobody but its owner can read. Never
// shows a byte of it.
#pragma once

#include <string>

#include "base/result.h"
#include "base/secret.h"

namespace hvd::rendezvous {

Result<Secret> read_token_file(const std::string& path);

}  // namespace hvd::rendezvous
