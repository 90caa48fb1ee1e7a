// A collective before which the members compare what they call. Members of a process set have negotiated their
// calls; members of a group have not, and a call that differs on one of them must not write into any memory.
// The runtime's groups use it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "collectives/algorithms/collectives.h"

namespace hvd::collectives {

// The call of a member, as numbers.
using CallRecord = std::array<uint64_t, 8>;

// A call of this member, and what the comparison has found.
struct CheckedCall {
  CallRecord record{};
  // The elements of an alltoall: to each member, then from each member. Empty: they follow from the record.
  std::vector<int64_t> counts;

  Status failure;  // the host has no room for the group: nothing was compared
  bool is_same = false;
  Clock::time_point met{};          // when the calls of all members were there
  std::vector<CallRecord> records;  // of all members, if they differ
  std::vector<int64_t> all_counts;  // `counts` of all members, one after another
};

// Compares the records of all members, and the counts of an alltoall pair by pair, and then runs the batch, which has
// at most one tensor.
// If anything differs, writes into no tensor and clears `is_same`. All members find the same, and the next call
// of the group is in step. A batch with the op HVD_BARRIER ends with the comparison.
Coroutine run_checked(Flow& flow, Group& group, const hvd_batch& batch, CheckedCall& call);

// Returns two members, the sender first, whose counts for each other differ; nothing when all agree.
std::optional<std::pair<size_t, size_t>> differing_pair(std::span<const int64_t> all_counts,
                                                        size_t members);

}  // namespace hvd::collectives
