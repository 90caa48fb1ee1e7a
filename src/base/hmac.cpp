#include "base/hmac.h"

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

namespace hvd {
namespace {

using Sum = std::array<std::byte, 32>;

constexpr size_t kBlock = 64;  // of SHA-256

Sum sha256_of(ByteView first, ByteView second) {
  SHA256_CTX context;
  Sum digest;
  SHA256_Init(&context);
  SHA256_Update(&context, first.data(), first.size());
  SHA256_Update(&context, second.data(), second.size());
  SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &context);
  return digest;
}

}  // namespace

// RFC 2104.
std::array<std::byte, 32> hmac_sha256(ByteView key, ByteView message) {
  Bytes padded(key.begin(), key.end());
  if (padded.size() > kBlock) {
    const Sum digest = sha256_of(key, {});
    padded.assign(digest.begin(), digest.end());
  }
  padded.resize(kBlock);
  Bytes inner = padded, outer = padded;
  for (std::byte& byte : inner) byte ^= std::byte{0x36};
  for (std::byte& byte : outer) byte ^= std::byte{0x5c};
  return sha256_of(outer, sha256_of(inner, message));
}

}  // namespace hvd
