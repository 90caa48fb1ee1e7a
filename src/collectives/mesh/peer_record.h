// The record that each rank publishes in the store before it has a link: its kernel, its network and
// its addresses. Values and their encoding only. Mesh makes, publishes and reads the records; the
// local rendezvous and RemoteLinks use the records.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace hvd::collectives {

// A TCP address that a peer may try; `bytes` holds 4 or 16 bytes.
struct Candidate {
  std::string interface;
  Bytes bytes;
};

struct PeerRecord {
  // These fields are equal on all ranks of a host and come first in the message: a common prefix of
  // the host's records is sent once.
  std::string host;     // for messages, never for decisions
  std::string machine;  // boot id "/" network namespace: equal when ranks may share memory
  // Identifier of the agent or server that started the rank, if known. Ranks with equal sites are on one
  // machine, and can share memory.
  std::string site;
  std::vector<Candidate> candidates;
  // These fields differ between ranks.
  int32_t rank = 0;
  std::string rendezvous_socket;  // name of the abstract Unix socket, without the leading zero
  uint32_t pid = 0;
  uint16_t port = 0;

  Bytes encode() const;
  static Result<PeerRecord> decode(ByteView bytes);
};

// Returns the leader of each rank, the lowest rank on its machine, if the records suffice. Returns
// nullopt if ranks that may share memory have different sites or lack a site.
std::optional<std::vector<int32_t>> known_leaders(const std::vector<PeerRecord>& records);

// Returns whether two ranks run on one kernel, possibly in different network namespaces.
bool shares_kernel(const PeerRecord& one, const PeerRecord& other);

}  // namespace hvd::collectives
