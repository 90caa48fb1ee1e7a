// What each rank tells the others through the store before they have any link: which kernel and
// network it lives in, and where it can be reached. Values and their wire form only.
#pragma once

#include <cstdint>
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
  int32_t rank = 0;
  std::string host;        // for sentences, never for decisions
  std::string machine;     // boot id "/" network namespace: equal when ranks may share memory
  std::string meeting;     // name of the abstract Unix socket, without the leading zero
  uint32_t pid = 0;
  uint16_t port = 0;
  std::vector<Candidate> candidates;

  Bytes encode() const;
  static Result<PeerRecord> decode(ByteView bytes);
};

// Whether two ranks run below one kernel, perhaps in different network namespaces.
bool shares_kernel(const PeerRecord& one, const PeerRecord& other);

}  // namespace hvd::collectives
