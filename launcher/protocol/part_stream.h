// The files of an environment from the agent of one host to that of another, over a connection of its own: the server's
// challenge, the client's request, and then records of the server, each with a StagePart. Both ends have a key of the
// job, which the launcher sent over their own links. The request proves the key before the server acts on it; each
// record carries a tag (HMAC-SHA256) that covers its place in the order, and crosses the network in clear. The nonces
// of both ends make the key of each connection another one. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secrets/hmac.h"
#include "launcher/protocol/protocol.h"
#include "launcher/protocol/token_proof.h"

namespace hvd::launcher {

// On the wire: the nonce by which the launcher names the server (MasterCandidates), and one of this connection.
inline constexpr size_t kChallengeSize = 2 * sizeof(Nonce);
// On the wire: the client's nonce, and a proof of both nonces.
inline constexpr size_t kRequestSize = sizeof(Nonce) + sizeof(Proof);

// The nonces of a connection.
struct PartNonces {
  Nonce of_server{}, of_client{};
};
Bytes make_part_request(const Digest& key, const PartNonces& nonces);
// Returns the client's nonce, or nothing for a request of a wrong size or without the proof.
std::optional<Nonce> check_part_request(const Digest& key, const Nonce& of_server,
                                        ByteView request);

// The key of the records of one connection.
HmacKey part_key(const Digest& key, const PartNonces& nonces);

class PartSealer {
 public:
  PartSealer(const Digest& key, const PartNonces& nonces) : key_(part_key(key, nonces)) {}
  // Returns the next record. kEnd: the server has nothing to send yet.
  Bytes seal(const StagePart& part);

 private:
  HmacKey key_;
  uint64_t records_ = 0;
};

class PartOpener {
 public:
  PartOpener(const Digest& key, const PartNonces& nonces) : key_(part_key(key, nonces)) {}
  void feed(ByteView bytes);
  // Returns a part, or nothing while bytes are missing. An error is final.
  Result<std::optional<StagePart>> next();

 private:
  HmacKey key_;
  uint64_t records_ = 0;
  Bytes buffer_;
};

}  // namespace hvd::launcher
