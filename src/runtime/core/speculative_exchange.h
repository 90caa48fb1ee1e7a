// Speculative allreduce between two ranks on two machines (negotiation/speculation.h): decides when a message carries
// eager data, and makes the plan for the case that both ranks expect the same batch. Owns the latest of these plans
// and its data. The runtime core applies the plans. Lives on the progress thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "runtime/core/message_links.h"
#include "runtime/core/process_set_registry.h"
#include "runtime/execution/batch_executor.h"
#include "runtime/negotiation/fusion_planner.h"

namespace hvd::runtime {

class SpeculativeExchange {
 public:
  // A plan that both ranks know without another message, and the peer's data for its single batch.
  // `plan` is nullptr if the ranks expected different batches.
  struct Match {
    const Plan* plan = nullptr;
    ByteView theirs;
  };

  // The arguments must outlive this object.
  SpeculativeExchange(const FusionOptions* fusion, BatchExecutor* executor, MessageLinks* links)
      : fusion_(fusion), executor_(executor), links_(links) {}

  // ---- the child ----
  // Adds eager data to the next announcement. Returns the cache ids of the data's names, or none.
  std::span<const uint32_t> attach_eager_data(ProcessSetState* set, Announcement* ready);
  // Records that an announcement was sent. `ids`: the cache ids of its eager data; may be empty.
  Match announced(ProcessSetState* set, std::span<const uint32_t> ids);
  Result<Match> receive_tentative_plan(ProcessSetState* set, ByteView message);
  // Records that the root's plan has arrived, which ends the speculation.
  void receive_plan(ProcessSetState* set, const Plan& plan);
  // Sends the empty announcement, once, because the set is about to end.
  Status close(ProcessSetState* set);

  // ---- the root ----
  // Sends a tentative plan to the child if no other plan is undecided and this rank is ready with
  // names that the child has not announced. `is_allowed`: the root may plan for this set.
  Status send_tentative_plan(ProcessSetState* set, bool is_allowed);
  // Returns whether a tentative plan is undecided; the root then makes no other plan.
  static bool awaits_announcement(const ProcessSetState& set) {
    return set.coordinator && set.speculation.is_undecided();
  }
  // Takes an announcement of the child. Returns whether the announcement matches the tentative plan.
  bool receive(ProcessSetState* set, const Announcement& announcement);
  // Returns the tentative plan that matched, if the coordinator's `plan` has the same names; or nullptr.
  const Plan* matched_plan(ProcessSetState* set, const Plan& plan);
  // Returns the child's eager data for a plan, if it has arrived. The plan message then carries this
  // rank's eager data.
  ByteView add_eager_data_to_plan(ProcessSetState* set, const Plan& plan);

  // Returns whether this object made the plan.
  bool is_own(const Plan& plan) const { return &plan == &plan_; }
  // Returns the number of eager sends for a batch that the plan did not contain.
  uint64_t wasted_sends() const { return wasted_sends_; }

 private:
  void build_plan(ProcessSetState* set, std::span<const uint32_t> ids);
  bool prepare_eager_data(ProcessSetState* set, std::span<const uint32_t> ids);

  const FusionOptions* const fusion_;
  BatchExecutor* const executor_;
  MessageLinks* const links_;
  uint64_t wasted_sends_ = 0;

  // Reused, so that a pass allocates no memory.
  TentativePlan tentative_;
  Plan plan_;  // the plan that this rank expects next
  std::vector<FusionUnit> units_;
  std::vector<AgreedItem> items_;
  std::vector<ByteView> tensors_;
  ByteWriter packed_;
  ByteView eager_data_;  // this rank's data for plan_
  ByteWriter out_;
};

}  // namespace hvd::runtime
