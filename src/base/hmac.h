// HMAC-SHA256 by libcrypto's plain SHA-256, for what must stay static: the interface that secret.h
// uses would bring name resolution and a loader along.
#pragma once

#include <array>

#include "base/bytes.h"

namespace hvd {

std::array<std::byte, 32> hmac_sha256(ByteView key, ByteView message);

}  // namespace hvd
