// The proofs by which an agent that connects to its launcher and the launcher show each other that
// they hold the same token, without sending it. Pure.
#pragma once

#include <array>
#include <string>

#include "base/bytes.h"

namespace hvd::launcher {

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
