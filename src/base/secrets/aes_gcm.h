// AES-256-GCM by libcrypto: one key in one direction. The caller must use each nonce once: two
// messages with one nonce reveal each other. One thread at a time.
#pragma once

#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/secrets/hmac.h"

struct evp_cipher_ctx_st;

namespace hvd {

class AesGcm {
 public:
  static constexpr size_t kTagSize = 16;
  enum class Direction { kSeal, kOpen };

  AesGcm(const Digest& key, Direction direction);

  // Encrypts the concatenated parts to `sealed`, and appends the tag.
  void seal(uint64_t nonce, std::span<const ByteView> parts, std::byte* sealed);
  // Decrypts all bytes except the tag to `plain`, which may be the memory of `sealed`. Returns
  // false if the tag does not match: the bytes at `plain` are then not the sender's.
  [[nodiscard]] bool open(uint64_t nonce, ByteView sealed, std::byte* plain);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace hvd
