// SHA-256 and HMAC-SHA256 by libcrypto's plain functions: they bring no name resolution and no
// loader along, so that static programs can have them, and take a quarter of the time of the
// others for messages of a line.
#pragma once

#include <openssl/sha.h>

#include <array>
#include <initializer_list>

#include "base/bytes.h"

namespace hvd {

using Digest = std::array<std::byte, 32>;

Digest sha256(ByteView message);

// SHA-256 of bytes that come in pieces. After digest(), the next one begins.
class Sha256 {
 public:
  Sha256();
  void add(ByteView bytes);
  Digest digest();

 private:
  SHA256_CTX context_;
};

// HMAC-SHA1, for OpenSSH's hashed host names. `key` has at most 64 bytes.
std::array<std::byte, SHA_DIGEST_LENGTH> hmac_sha1(ByteView key, ByteView message);

// A key that is ready to sign: what depends on it alone is done once.
class HmacKey {
 public:
  explicit HmacKey(ByteView key);
  ~HmacKey();
  HmacKey(const HmacKey&) = default;
  HmacKey& operator=(const HmacKey&) = default;

  Digest sign(ByteView message) const;
  // Signs the concatenation of the parts.
  Digest sign(std::initializer_list<std::string_view> parts) const;

 private:
  Digest finish(SHA256_CTX inner) const;
  SHA256_CTX inner_, outer_;
};

}  // namespace hvd
