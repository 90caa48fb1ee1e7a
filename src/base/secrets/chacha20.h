// ChaCha20 (RFC 8439), for static programs: libcrypto's ciphers bring its loader of providers along. It only encrypts:
// the caller uses each nonce of a key once, and authenticates the bytes. Pure.
#pragma once

#include <array>
#include <span>

#include "base/secrets/hmac.h"

namespace hvd {

using ChaCha20Nonce = std::array<std::byte, 12>;

// Encrypts the bytes in their place, or decrypts them. `counter`: the number of the first block of 64 bytes.
void chacha20(const Digest& key, const ChaCha20Nonce& nonce, uint32_t counter,
              std::span<std::byte> bytes);

}  // namespace hvd
