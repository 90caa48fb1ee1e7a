// The keys and proofs for a connection between an agent and its launcher: each end proves that it has the
// token, without sending it. Pure.
#pragma once

#include <array>

#include "base/bytes.h"
#include "base/secrets/secret.h"

namespace hvd::launcher {

// Returns the key for TLS between launcher and agent.
Digest join_key(const Secret& token);
// Replaces the token in the proofs on a link without TLS, so that an attacker cannot reuse them on
// a link with TLS.
Secret plaintext_token(const Secret& token);

using Proof = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 32>;

// Returns the agent's proof that it has the token. The proof covers `name`, the agent's own name, and differs from the
// launcher's proof, so that nobody can reflect a proof to its sender.
Proof prove_agent(ByteView token, const Nonce& of_launcher, const Nonce& of_agent,
                  std::string_view name);
// Returns the launcher's proof that it has the token.
Proof prove_launcher(ByteView token, const Nonce& of_launcher, const Nonce& of_agent);

// Takes the same time wherever the proofs differ, so that the time reveals nothing about a proof.
bool is_same(const Proof& a, const Proof& b);

}  // namespace hvd::launcher
