// Owns the process sets of this rank, in the order of their serial numbers: adds, finds and drops
// them. Buffers messages for sets that this rank has not added yet. Lives on the progress thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "runtime/core/message_links.h"
#include "runtime/execution/batch_executor.h"
#include "runtime/negotiation/coordinator.h"
#include "runtime/negotiation/negotiator.h"
#include "runtime/negotiation/speculation.h"
#include "runtime/submission/set_table.h"
#include "runtime/submission/tensor_table.h"

namespace hvd::runtime {

// Returns whether the set has two members, on two machines.
inline bool are_two_machines(const SetMembers& members, std::span<const int32_t> machines) {
  const auto machine = [&](size_t i) { return machines[static_cast<size_t>(members.ranks[i])]; };
  return members.ranks.size() == 2 && machine(0) != machine(1);
}

// The state of one process set on a member rank: its negotiation, its plans and the queue of its
// batches. ProcessSetRegistry owns this state. Process sets are independent: each has its own
// combining tree, root, response cache and plan sequence. Lives on the progress thread.
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

  // True after the last plan: made on the root, applied on other ranks. The set of all ranks has no last plan: the
  // shutdown protocol ends it.
  bool ended = false;
  bool removed = false;           // by all ranks; the set is dropped once ended and idle
  Submission* removal = nullptr;  // this rank's request to remove the set
};

class ProcessSetRegistry {
 public:
  // Objects that must outlive the ProcessSetRegistry.
  struct Parts {
    SetTable* table;
    TensorTable* names;
    BatchExecutor* executor;
    const MessageLinks* links;
    CompletionSink* sink;
    const FusionOptions* fusion;
  };
  ProcessSetRegistry(const Parts& parts, uint32_t cache_capacity)
      : parts_(parts), cache_capacity_(cache_capacity) {}

  // Opens the set of all ranks. Must be called first.
  Status open_all();

  // Every rank must call add and remove with the same arguments in the same order. The two functions complete
  // the submission, or, if this rank is a member of the removed set, drop_removed() completes it. `submission`
  // is nullptr if only other ranks have submitted the call.
  Status add(const Request& request, std::string_view name, Submission* submission);
  // Returns the set whose work the caller must end, or nullptr.
  ProcessSetState* remove(int32_t id, Submission* submission);
  // Drops removed sets that have ended and are idle. Returns true if it dropped any set.
  Result<bool> drop_removed();

  ProcessSetState* all() const { return all_; }
  // Returns nullptr if the set does not exist or this rank is not a member.
  ProcessSetState* find(uint32_t serial) const { return serial == 0 ? all_ : find_other(serial); }
  // Iterate by index: a plan of one set may add another set at the end.
  size_t size() const { return sets_.size(); }
  ProcessSetState* at(size_t index) const { return sets_[index].get(); }
  bool all_ended() const;
  // Returns false if the set does not exist. This rank need not be a member.
  bool is_member(int32_t process_set, int32_t rank) const;

  // A message for a set that its sender has added but this rank has not.
  struct Early {
    uint32_t set;
    int32_t from;
    Bytes message;
  };
  // Returns whether this rank has not added the set yet.
  bool is_ahead(uint32_t serial) const { return serial > last_serial_; }
  Status keep_early(uint32_t serial, int32_t from, ByteView message);
  void keep_early(Early&& message);
  bool has_early() const { return !early_.empty(); }
  std::vector<Early> take_early();

 private:
  Status open(std::shared_ptr<const SetMembers> members);
  Status add_set(std::vector<int32_t> ranks, std::string_view name, Submission* submission);
  void complete(Submission* submission, const Status& status);
  ProcessSetState* find_other(uint32_t serial) const;

  const Parts parts_;
  const uint32_t cache_capacity_;
  std::vector<std::unique_ptr<ProcessSetState>> sets_;
  ProcessSetState* all_ = nullptr;  // sets_[0]
  uint32_t last_serial_ = 0;        // serial number of the latest set
  std::vector<Early> early_;
  size_t early_bytes_ = 0;
  bool some_removed_ = false;
};

}  // namespace hvd::runtime
