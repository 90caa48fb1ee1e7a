// The state of one process set on a member rank: its negotiation, its plans and the queue of its
// batches. ProcessSetRegistry owns this state, and the runtime core works on it. Process sets are independent:
// each has its own combining tree, root, response cache and plan sequence. Lives on the progress thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/execution/batch_executor.h"
#include "runtime/negotiation/coordinator.h"
#include "runtime/negotiation/negotiator.h"
#include "runtime/negotiation/speculation.h"
#include "runtime/submission/set_table.h"

namespace hvd::runtime {

// Returns whether the set has two members, on two machines.
inline bool are_two_machines(const SetMembers& members, std::span<const int32_t> machines) {
  const auto machine = [&](size_t i) { return machines[static_cast<size_t>(members.ranks[i])]; };
  return members.ranks.size() == 2 && machine(0) != machine(1);
}

struct ProcessSetState {
  ProcessSetState(std::shared_ptr<const SetMembers> of, int32_t rank,
                  std::span<const int32_t> machines, const FusionOptions& fusion,
                  uint32_t cache_capacity)
      : members(std::move(of)),
        negotiator(rank, place_in_tree(rank, members->ranks, machines), &cache),
        speculation(are_two_machines(*members, machines)) {
    if (negotiator.place().parent >= 0) return;
    coordinator.emplace(CoordinatorOptions{members->ranks, members->serial, fusion, cache_capacity},
                        &cache);
  }

  const std::shared_ptr<const SetMembers> members;
  ResponseCache cache;
  Negotiator negotiator;
  std::optional<Coordinator> coordinator;  // on the root of the set only
  BatchExecutor::BatchQueue* queue = nullptr;
  uint64_t plans = 0;       // number of applied plans
  bool needs_turn = false;  // the latest plan has batches that wait for a turn (device_turns.h)
  Speculation speculation;

  // True while this rank has called join and another member has not. after_join holds later submissions.
  bool has_joined = false;
  std::vector<Submission*> after_join;

  // True on the root after it has made the last plan, on another rank after it has applied that plan.
  bool ended = false;
  bool removed = false;           // by all ranks; the set is dropped once ended and idle
  Submission* removal = nullptr;  // this rank's request to remove the set
};

}  // namespace hvd::runtime
