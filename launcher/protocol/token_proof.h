// The keys and proofs by which an agent that connects to its launcher and the launcher show each other
// that they hold the same token, without sending it. Pure.
#pragma once

#include <array>
#include <string>

#include "base/bytes.h"
#include "base/secrets/secret.h"

namespace hvd::launcher {

// The shared key of TLS between both.
Digest join_key(const Secret& token);
// Stands for the token in the proofs on a link without TLS. The proofs of such a link are useless on
// a link by TLS, to which an attacker could pass them on.
Secret plaintext_token(const Secret& token);

using Proof = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 32>;

// The proofs of the two sides differ, so that neither can be reflected to its sender. `name` is the
// agent's own name; the proof covers it.
Proof prove_agent(ByteView token, const Nonce& of_launcher, const Nonce& of_agent,
                  std::string_view name);
Proof prove_launcher(ByteView token, const Nonce& of_launcher, const Nonce& of_agent);

// In a time that does not depend on where they differ.
bool is_same(const Proof& a, const Proof& b);

}  // namespace hvd::launcher
