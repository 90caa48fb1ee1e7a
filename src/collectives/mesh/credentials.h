// The proofs that two ranks exchange when they open a link. A proof shows that its sender has the job's
// secret, and is valid for one job, generation, pair of ranks and pair of nonces. The handshake and the
// local rendezvous make and check proofs. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/secrets/secret.h"

namespace hvd::collectives {

using Nonce = std::array<std::byte, 32>;

struct Credentials {
  std::string job;
  int32_t generation = 0;
  Secret secret;
  bool encrypts = false;  // links between hosts carry encrypted records; equal on all ranks

  // Returns the proof of rank `from` for rank `to`, an HMAC-SHA256 with the job's secret. `role` prevents
  // a replay in the other direction. The proof also covers `payload`.
  Digest prove(std::string_view role, int32_t from, int32_t to, const Nonce& first,
               const Nonce& second, ByteView payload = {}) const;
  // Returns a key that both ends of a link derive from equal values, by HKDF-SHA256; `role` is the direction.
  Digest derive_key(std::string_view role, int32_t from, int32_t to, const Nonce& first,
                    const Nonce& second, ByteView payload = {}) const;
};

Nonce fresh_nonce();

}  // namespace hvd::collectives
