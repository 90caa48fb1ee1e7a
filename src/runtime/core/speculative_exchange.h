// Speculative allreduce between two ranks on two machines (negotiation/speculation.h): decides when
// eager data leaves with a message, and makes the plan that holds when both ranks expected the same
// batch. Owns the plan and the data of the latest guess. Never applies a plan: the runtime core does.
// Belongs to the thread that makes progress.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "runtime/core/message_links.h"
#include "runtime/core/process_set.h"
#include "runtime/execution/batch_executor.h"
#include "runtime/negotiation/fusion_planner.h"

namespace hvd::runtime {

class SpeculativeExchange {
 public:
  // A plan that both ranks have without another message, and the peer's data for its one batch.
  // plan is nullptr where the ranks did not expect the same.
  struct Match {
    const Plan* plan = nullptr;
    ByteView theirs;
  };

  // All of these outlive it.
  SpeculativeExchange(const FusionOptions* fusion, BatchExecutor* executor, MessageLinks* links)
      : fusion_(fusion), executor_(executor), links_(links) {}

  // ---- the child ----
  // Adds eager data to an announcement that leaves next. Returns the names that the data is for, or none.
  std::span<const uint32_t> attach_eager_data(ProcessSet* set, Announcement* ready);
  // An announcement has left, with eager data for these names (none: without).
  Match announced(ProcessSet* set, std::span<const uint32_t> ids);
  Result<Match> receive_tentative_plan(ProcessSet* set, ByteView message);
  // The root's plan came, which ends the speculation.
  void receive_plan(ProcessSet* set, const Plan& plan);

  // ---- the root ----
  // Sends a tentative plan to the child if nothing is under way and this rank is ready with names that
  // the child has not announced. is_allowed: whether the root may plan for this set.
  Status send_tentative_plan(ProcessSet* set, bool is_allowed);
  // Whether a tentative plan is undecided: the root makes no other plan meanwhile.
  static bool awaits_announcement(const ProcessSet& set) {
    return set.coordinator && set.speculation.is_undecided();
  }
  // An announcement came. True: it matches the tentative plan.
  bool receive(ProcessSet* set, const Announcement& announcement);
  // The tentative plan that matched, if `plan`, the coordinator's, is of the same names; or nullptr.
  const Plan* matched_plan(ProcessSet* set, const Plan& plan);
  // The child's eager data for a plan that was made, if it is here already. The plan then carries this
  // rank's eager data.
  ByteView add_eager_data_to_plan(ProcessSet* set, const Plan& plan);

  // Whether this is a plan of its own making.
  bool is_own(const Plan& plan) const { return &plan == &plan_; }
  // Eager data that was sent for a batch that came otherwise.
  uint64_t wasted_sends() const { return wasted_sends_; }

 private:
  void build_plan(ProcessSet* set, std::span<const uint32_t> ids);
  bool prepare_eager_data(ProcessSet* set, std::span<const uint32_t> ids);

  const FusionOptions* const fusion_;
  BatchExecutor* const executor_;
  MessageLinks* const links_;
  uint64_t wasted_sends_ = 0;

  // Kept for their memory.
  TentativePlan tentative_;
  Plan plan_;  // of the names that this rank expects to be next
  std::vector<FusionUnit> units_;
  std::vector<AgreedItem> items_;
  std::vector<ByteView> tensors_;
  ByteWriter packed_;
  ByteView eager_data_;  // this rank's, for that plan
  ByteWriter out_;
};

}  // namespace hvd::runtime
