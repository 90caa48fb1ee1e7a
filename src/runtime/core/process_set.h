// One process set on a rank that is its member: its negotiation, its plans and where its batches
// run. Sets know nothing of each other: each has a tree, a root, cache ids and a sequence of its
// own. Belongs to the thread that makes progress.
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

// Two members, each on a machine of its own.
inline bool are_two_machines(const SetMembers& members, std::span<const int32_t> machines) {
  const auto machine = [&](size_t i) { return machines[static_cast<size_t>(members.ranks[i])]; };
  return members.ranks.size() == 2 && machine(0) != machine(1);
}

struct ProcessSet {
  ProcessSet(std::shared_ptr<const SetMembers> of, int32_t rank, std::span<const int32_t> machines,
             const FusionOptions& fusion, uint32_t cache_capacity)
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
  std::optional<Coordinator> coordinator;  // of its root
  BatchExecutor::BatchQueue* queue = nullptr;
  uint64_t plans = 0;  // applied
  Speculation speculation;
  bool last_was_speculative = false;  // of the plans applied

  // Between this rank's join and everybody's: what was submitted after it.
  bool has_joined = false;
  std::vector<Submission*> after_join;

  // Nothing is planned any more (its root), or the last plan was applied.
  bool ended = false;
  bool removed = false;           // by all ranks: it goes when it has ended and is idle
  Submission* removal = nullptr;  // who asked for that, on this rank
};

}  // namespace hvd::runtime
