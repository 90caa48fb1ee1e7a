// Sends an environment's files from one host's agent to another's, over a separate connection: the
// server's challenge, the client's request, and then the server's records, each with a StagePart.
// Client and server have a key of the job, which the launcher sent over its links. The request proves the client's
// knowledge of the key before the server acts on the request. Each record is sent unencrypted, with a tag (HMAC-SHA256)
// that covers its sequence number. The nonces of client and server make each connection's key unique. Pure.
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

// On the wire: the nonce with which the launcher identifies the server (MasterCandidates), and this connection's nonce.
inline constexpr size_t kChallengeSize = 2 * sizeof(Nonce);
// On the wire: the client's nonce, and a proof for both nonces.
inline constexpr size_t kRequestSize = sizeof(Nonce) + sizeof(Proof);

// The nonces of a connection.
struct PartNonces {
  Nonce of_server{}, of_client{};
};
Bytes make_part_request(const Digest& key, const PartNonces& nonces);
// Returns the client's nonce; nullopt if the request has a wrong size or proof.
std::optional<Nonce> check_part_request(const Digest& key, const Nonce& of_server,
                                        ByteView request);

// Returns the key for the records of one connection.
HmacKey part_key(const Digest& key, const PartNonces& nonces);

class PartSealer {
 public:
  PartSealer(const Digest& key, const PartNonces& nonces) : key_(part_key(key, nonces)) {}
  // Returns the next record. A part of kind kEnd means that the server currently has nothing to send.
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
