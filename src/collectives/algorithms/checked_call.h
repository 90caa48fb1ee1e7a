// A collective before which the members compare their calls. Members of a process set have negotiated their calls;
// members of a group have not. If the calls differ, no member may write into any memory.
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

// A member's call, as numbers.
using CallRecord = std::array<uint64_t, 8>;

// This member's call, and the result of the comparison.
struct CheckedCall {
  CallRecord record{};
  // The element counts of an alltoall: to each member, then from each member. Empty if the record defines the counts.
  std::vector<int64_t> counts;

  Status failure;  // the host has no memory for the group; no comparison took place
  bool is_same = false;
  Clock::time_point met{};          // when the calls of all members had arrived
  std::vector<CallRecord> records;  // records of all members, if they differ
  std::vector<int64_t> all_counts;  // `counts` of all members, one after another
};

// Compares the records of all members, and the counts of an alltoall pair by pair, and then runs
// the batch, which has at most one tensor. If anything differs, clears `is_same` and writes into no
// tensor. All members get the same result, and the group stays in step. A batch with the op
// HVD_BARRIER ends with the comparison.
Coroutine run_checked(Flow& flow, Group& group, const hvd_batch& batch, CheckedCall& call);

// Returns two members, the sender first, whose counts for each other differ; nullopt if all counts agree.
std::optional<std::pair<size_t, size_t>> differing_pair(std::span<const int64_t> all_counts,
                                                        size_t members);

}  // namespace hvd::collectives
