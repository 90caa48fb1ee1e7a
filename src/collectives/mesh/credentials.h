// The proofs that two ranks exchange when they open a link: each shows that it has the job's secret,
// for this job, generation and pair of ranks. A proof is valid for one pair of nonces. The
// handshake and the local rendezvous make and check proofs. Pure.
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

  // The proof of rank `from` for rank `to`: an HMAC-SHA256 with the job's secret. `role` prevents
  // the replay of a proof in the other direction; `payload` is signed with it.
  Digest prove(std::string_view role, int32_t from, int32_t to, const Nonce& first,
               const Nonce& second, ByteView payload = {}) const;
  // A key that both ends of a link derive from the same values, by HKDF-SHA256; `role` is the direction.
  Digest derive_key(std::string_view role, int32_t from, int32_t to, const Nonce& first,
                    const Nonce& second, ByteView payload = {}) const;
};

Nonce fresh_nonce();

}  // namespace hvd::collectives
