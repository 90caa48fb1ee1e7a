// Divides files and directories into parts, which the launcher sends to a host (--stage, --stage-env, the package), or
// one host to another. Reads each part from disk when the receiver can take it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secrets/hmac.h"
#include "base/unique_fd.h"
#include "launcher/protocol/protocol.h"
#include "launcher/protocol/token_proof.h"

namespace hvd::launcher {

inline constexpr size_t kMostStaged = 64 << 10;  // bytes of a part

struct StagedEntry {
  StageKind kind = StageKind::kFile;
  uint32_t mode = 0;
  std::string path{};  // in the copy
  std::string link{};  // a symbolic link's target; for kEnd: the digest of all previous parts
  std::filesystem::path from{};  // the source of a file
  uint64_t size = 0;             // bytes of a file; else 0
  // The content of a file in memory, which must outlive the entry.
  std::optional<std::string_view> text{};
  // The digest of the file, if known, and the user's remedy if the file has another digest.
  std::optional<Digest> digest{};
  std::string remedy{};
};

// Adds the last entry, with the digest of all previous parts. Reads all files. `option`: the flag, for errors.
Status add_digest(std::vector<StagedEntry>& entries, const std::string& option);

class StagedParts {
 public:
  // `entries` must outlive this object. `option`: the flag that named the files, for errors. `first`: the first entry.
  StagedParts(const std::vector<StagedEntry>& entries, std::string option, size_t first = 0)
      : entries_(entries), option_(std::move(option)), index_(first) {}
  // Returns the next part; nullopt after the last part, and once next() has read `until` bytes in all.
  Result<std::optional<StagePart>> next(uint64_t until = std::numeric_limits<uint64_t>::max());
  bool has_ended() const { return index_ >= entries_.size(); }

 private:
  Result<std::optional<StagePart>> next_of_file(const StagedEntry& entry, uint64_t until);
  Status open(const StagedEntry& entry);
  Result<std::string> read(const StagedEntry& entry, size_t size);

  const std::vector<StagedEntry>& entries_;
  const std::string option_;
  size_t index_;  // index of the current entry
  UniqueFd file_;
  uint64_t offset_ = 0;  // bytes read from the entry
  uint64_t read_ = 0;    // bytes read from all files
  Sha256 hash_;          // hash of the current entry's bytes
};

// Size in bytes of the server's first message: the nonce with which the launcher identifies the server
// (MasterCandidates), and this connection's nonce.
inline constexpr size_t kChallengeSize = 2 * sizeof(Nonce);
// Size in bytes of the client's request: its nonce, and a proof for both nonces.
inline constexpr size_t kRequestSize = sizeof(Nonce) + sizeof(Proof);

// The nonces of a connection over which one host's agent sends files of an environment to another host's agent. Its
// messages: the server's challenge, the client's request, and the server's records, each with a StagePart. Both ends
// have a key of the job, which the launcher sent over its links. The nonces make each connection's key unique.
struct PartNonces {
  Nonce of_server{}, of_client{};
};
// Returns the client's request, which proves that the client knows the key.
Bytes make_part_request(const Digest& key, const PartNonces& nonces);
// Returns the client's nonce; nullopt if the request has a wrong size or proof.
std::optional<Nonce> check_part_request(const Digest& key, const Nonce& of_server,
                                        ByteView request);

// Returns the connection's key.
HmacKey part_key(const Digest& key, const PartNonces& nonces);

// Encodes the server's records: unencrypted, each with a tag (HMAC-SHA256) that covers its sequence number.
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
