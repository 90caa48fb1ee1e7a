#include "launcher/agent/token_proof.h"

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

namespace hvd::launcher {

namespace {

constexpr size_t kBlock = 64;  // of SHA-256

Proof sha256_of(ByteView first, ByteView second) {
  SHA256_CTX context;
  Proof digest;
  SHA256_Init(&context);
  SHA256_Update(&context, first.data(), first.size());
  SHA256_Update(&context, second.data(), second.size());
  SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &context);
  return digest;
}

Proof prove(ByteView token, std::string_view who, const Nonce& of_launcher, const Nonce& of_agent,
            std::string_view name) {
  ByteWriter message;
  message.put_text(who).put_blob(of_launcher).put_blob(of_agent).put_text(name);
  return hmac_sha256(token, message.view());
}

}  // namespace

// RFC 2104.
Proof hmac_sha256(ByteView key, ByteView message) {
  Bytes padded(key.begin(), key.end());
  if (padded.size() > kBlock) {
    const Proof digest = sha256_of(key, {});
    padded.assign(digest.begin(), digest.end());
  }
  padded.resize(kBlock);
  Bytes inner = padded, outer = padded;
  for (std::byte& byte : inner) byte ^= std::byte{0x36};
  for (std::byte& byte : outer) byte ^= std::byte{0x5c};
  return sha256_of(outer, sha256_of(inner, message));
}

Proof prove_agent(ByteView token, const Nonce& of_launcher, const Nonce& of_agent,
                  std::string_view name) {
  return prove(token, "horovod agent", of_launcher, of_agent, name);
}

Proof prove_launcher(ByteView token, const Nonce& of_launcher, const Nonce& of_agent) {
  return prove(token, "horovod launcher", of_launcher, of_agent, {});
}

bool is_same(const Proof& a, const Proof& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= std::to_integer<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace hvd::launcher
