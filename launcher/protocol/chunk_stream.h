// Chunks of an environment from the agent of one host to that of another, over a connection of its own: the server's
// challenge, the client's request, and then records of the server. Both ends have a key of the job, which the launcher
// sent over their own links. The request proves the key before the server acts on it; each record carries a tag
// (HMAC-SHA256) that covers its place in the order, and crosses the network in clear. The nonces of both ends make the
// key of each connection another one. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secrets/hmac.h"
#include "launcher/protocol/token_proof.h"

namespace hvd::launcher {

// On the wire: the nonce by which the launcher names the server (MasterCandidates), and one of this connection.
inline constexpr size_t kChallengeSize = 2 * sizeof(Nonce);
// On the wire: the client's nonce, the number of the first chunk that it wants (64 bits), a proof of both.
inline constexpr size_t kRequestSize = sizeof(Nonce) + sizeof(uint64_t) + sizeof(Proof);

// The nonces of a connection.
struct ChunkNonces {
  Nonce of_server{}, of_client{};
};
Bytes make_chunk_request(const Digest& key, const ChunkNonces& nonces, uint64_t first);
struct ChunkRequest {
  Nonce of_client{};
  uint64_t first = 0;
};
// Returns nothing for a request of a wrong size or without the proof.
std::optional<ChunkRequest> check_chunk_request(const Digest& key, const Nonce& of_server,
                                                ByteView request);

struct Chunk {
  uint64_t number = 0;
  // Empty also where the server has nothing to send yet: `number` is then kNoChunk.
  std::string bytes;
};
inline constexpr uint64_t kNoChunk = UINT64_MAX;

// The key of the records of one connection.
HmacKey chunk_key(const Digest& key, const ChunkNonces& nonces);

class ChunkSealer {
 public:
  ChunkSealer(const Digest& key, const ChunkNonces& nonces) : key_(chunk_key(key, nonces)) {}
  // Returns the next record. At most kChunkSize bytes.
  Bytes seal(uint64_t number, std::string_view bytes);

 private:
  HmacKey key_;
  uint64_t records_ = 0;
};

class ChunkOpener {
 public:
  ChunkOpener(const Digest& key, const ChunkNonces& nonces) : key_(chunk_key(key, nonces)) {}
  void feed(ByteView bytes);
  // Returns a chunk, or nothing while bytes are missing. An error is final.
  Result<std::optional<Chunk>> next();

 private:
  HmacKey key_;
  uint64_t records_ = 0;
  Bytes buffer_;
};

}  // namespace hvd::launcher
