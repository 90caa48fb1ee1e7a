// Signatures by which client and server prove on each connection that they know the secret, without a clock. The
// connection's key is derived from the secret and each end's nonce. The key signs every message with a counter, which
// prevents replays. Format: PROTOCOL.md, "Signatures". No I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/secrets/hmac.h"
#include "base/secrets/secret.h"

namespace hvd::rendezvous {

// Returns 16 random bytes as 32 hexadecimal digits in lower case.
std::string make_nonce();
bool is_nonce(std::string_view text);

class SessionKey {
 public:
  SessionKey(const Secret& secret, std::string_view client_nonce, std::string_view server_nonce);

  Digest sign_request(uint64_t count, std::string_view method, std::string_view target,
                      const Digest& body) const;
  Digest sign_response(uint64_t count, int status, const Digest& body) const;

 private:
  HmacKey key_;
};

// The Authorization header of a request: "HVD1 <count> <body> <signature>".
struct Proof {
  uint64_t count = 0;
  Digest body{};  // SHA-256
  Digest signature{};
};
std::string to_string(const Proof& proof);
Result<Proof> parse_proof(std::string_view text);

// Parses 64 hexadecimal digits in lower case.
Result<Digest> parse_digest(std::string_view text);
const Digest& digest_of_nothing();

}  // namespace hvd::rendezvous
