#include "base/secrets/hmac.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "base/check.h"

// libcrypto 3 deprecates these low-level functions.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace hvd {
namespace {

constexpr size_t kBlock = 64;  // block size of SHA-256 and SHA-1, in bytes

void update(SHA256_CTX& context, ByteView bytes) {
  SHA256_Update(&context, bytes.data(), bytes.size());
}

Digest final_of(SHA256_CTX& context) {
  Digest digest;
  SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &context);
  return digest;
}

}  // namespace

Digest sha256(ByteView message) {
  SHA256_CTX context;
  SHA256_Init(&context);
  update(context, message);
  return final_of(context);
}

Sha256::Sha256() { SHA256_Init(&context_); }
void Sha256::add(ByteView bytes) { update(context_, bytes); }
Digest Sha256::digest() {
  const Digest digest = final_of(context_);
  SHA256_Init(&context_);
  return digest;
}

std::array<std::byte, SHA_DIGEST_LENGTH> hmac_sha1(ByteView key, ByteView message) {
  HVD_CHECK(key.size() <= kBlock);
  std::array<std::byte, kBlock> block{};
  std::copy(key.begin(), key.end(), block.begin());
  std::array<std::byte, SHA_DIGEST_LENGTH> digest;
  const auto hash = [&](std::byte pad, ByteView text) {
    for (std::byte& byte : block) byte ^= pad;
    SHA_CTX context;
    SHA1_Init(&context);
    SHA1_Update(&context, block.data(), block.size());
    SHA1_Update(&context, text.data(), text.size());
    SHA1_Final(reinterpret_cast<unsigned char*>(digest.data()), &context);
  };
  hash(std::byte{0x36}, message);
  hash(std::byte{0x36 ^ 0x5c}, digest);
  return digest;
}

HmacKey::HmacKey(ByteView key) {
  std::array<std::byte, kBlock> block{};
  if (key.size() > kBlock) {
    const Digest digest = sha256(key);
    std::copy(digest.begin(), digest.end(), block.begin());
  } else {
    std::copy(key.begin(), key.end(), block.begin());
  }
  for (std::byte& byte : block) byte ^= std::byte{0x36};
  SHA256_Init(&inner_);
  update(inner_, block);
  for (std::byte& byte : block) byte ^= std::byte{0x36 ^ 0x5c};
  SHA256_Init(&outer_);
  update(outer_, block);
  OPENSSL_cleanse(block.data(), block.size());
}

HmacKey::~HmacKey() {
  OPENSSL_cleanse(&inner_, sizeof inner_);
  OPENSSL_cleanse(&outer_, sizeof outer_);
}

Digest HmacKey::finish(SHA256_CTX inner) const {
  SHA256_CTX outer = outer_;
  update(outer, final_of(inner));
  return final_of(outer);
}

Digest HmacKey::sign(ByteView message) const {
  SHA256_CTX inner = inner_;
  update(inner, message);
  return finish(inner);
}

Digest HmacKey::sign(std::initializer_list<std::string_view> parts) const {
  SHA256_CTX inner = inner_;
  for (const std::string_view part : parts) update(inner, as_bytes(part));
  return finish(inner);
}

}  // namespace hvd

#pragma GCC diagnostic pop
