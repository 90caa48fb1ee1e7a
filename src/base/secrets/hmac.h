// SHA-256 and HMAC-SHA256 by libcrypto's low-level functions, which need no dynamic loader, so static programs can use
// them. For short messages, these functions take a quarter of the time of the EVP functions.
#pragma once

#include <openssl/sha.h>

#include <array>
#include <initializer_list>

#include "base/bytes.h"

namespace hvd {

using Digest = std::array<std::byte, 32>;

Digest sha256(ByteView message);

// SHA-256 of bytes that arrive in pieces. After digest(), a new message begins.
class Sha256 {
 public:
  Sha256();
  void add(ByteView bytes);
  Digest digest();

 private:
  SHA256_CTX context_;
};

// Computes HMAC-SHA1, for OpenSSH's hashed host names. `key` has at most 64 bytes.
std::array<std::byte, SHA_DIGEST_LENGTH> hmac_sha1(ByteView key, ByteView message);

// A key that is ready to sign: the steps that depend only on the key are done once.
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
