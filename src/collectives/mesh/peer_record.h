// The record that each rank publishes in the store before it has a link: its kernel and network,
// and its addresses. Values and their wire form only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace hvd::collectives {

// A TCP address as a peer may try it; `bytes` has 4 or 16.
struct Candidate {
  std::string interface;
  Bytes bytes;
};

struct PeerRecord {
  // Alike for the ranks of a host, and first on the wire: what a host's records begin with alike
  // is sent once.
  std::string host;     // for sentences, never for decisions
  std::string machine;  // boot id "/" network namespace: equal when ranks may share memory
  // Identifier of the agent or server that started the rank, if known. Two machines never have the
  // same site: ranks with one site can share memory.
  std::string site;
  std::vector<Candidate> candidates;
  // Its own.
  int32_t rank = 0;
  std::string rendezvous_socket;  // name of the abstract Unix socket, without the leading zero
  uint32_t pid = 0;
  uint16_t port = 0;

  Bytes encode() const;
  static Result<PeerRecord> decode(ByteView bytes);
};

// The leader of each rank, the lowest one on its machine, where the records alone say so: nothing
// where ranks that may share memory are of different sites, or of none.
std::optional<std::vector<int32_t>> known_leaders(const std::vector<PeerRecord>& records);

// Whether two ranks run below one kernel, perhaps in different network namespaces.
bool shares_kernel(const PeerRecord& one, const PeerRecord& other);

}  // namespace hvd::collectives
