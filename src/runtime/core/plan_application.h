// Applies the plans on which the ranks of a process set agreed: finds this rank's submission of each item, updates the
// response cache, and adds the batches to the executor. Checks a plan of another rank before it uses the plan's numbers
// as sizes or indexes. The runtime core makes, sends and receives plans, ends sets, and calls this class on the
// progress thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "runtime/core/process_set_registry.h"
#include "runtime/execution/batch_executor.h"
#include "runtime/submission/tensor_table.h"
#include "runtime/telemetry/trace_recorder.h"

namespace hvd::runtime {

// Receives the items of a plan that have no batch, in the plan's order.
class PlanSink : public CompletionSink {
 public:
  // Takes the notice that all members have joined. `last` is the last rank that joined.
  virtual void all_have_joined(ProcessSetState* set, int32_t last) = 0;
  // Handles an item that adds or removes process sets, with this rank's submission.
  virtual Status register_sets(const PlanItem& item, Submission* submission) = 0;
};

class PlanApplication {
 public:
  // Objects that must outlive the PlanApplication.
  struct Parts {
    TensorTable* names;
    BatchExecutor* executor;
    Instruments* instruments;
    PlanSink* sink;
  };
  PlanApplication(const Parts& parts, int32_t rank) : parts_(parts), rank_(rank) {}

  // Applies the set's next plan. `theirs`: the peer's eager data for the only batch of the plan, if
  // it has arrived. `is_speculative`: this rank made the plan by a successful speculation.
  Status apply(ProcessSetState* set, const Plan& plan, ByteView theirs, bool is_speculative);

  struct Counts {
    uint64_t batches = 0;
    uint64_t fused_tensors = 0;        // tensors in batches of several tensors
    uint64_t speculative_batches = 0;  // batches that used the peer's eager data
  };
  const Counts& counts() const { return counts_; }

  // The last operation of the latest plan of the global process set. All ranks that have not joined have submitted it.
  struct LastCommon {
    int32_t op = 0;
    std::string name;  // empty: none yet
  };
  LastCommon last_common(const ProcessSetState& all) const;

 private:
  Status check(const ProcessSetState& set, const PlanItem& item,
               const Submission* submission) const;
  Status check_batches(const Plan& plan);
  Status forget(ProcessSetState* set, const Plan& plan);
  Status resolve(ProcessSetState* set, const PlanItem& item, AgreedItem* agreed);
  Status learn(ProcessSetState* set, const PlanItem& item, Submission* submission,
               CacheEntry** entry);
  void note_last_common(const PlanItem& item);
  void note_agreement(const SetMembers& set, const PlanItem& item, const Submission& submission);
  Status run(ProcessSetState* set, const std::vector<PlanUnit>& batch, ByteView theirs);

  const Parts parts_;
  const int32_t rank_;
  Counts counts_;
  uint64_t step_ = 1;      // the current training step, from repeated names in the set of all ranks
  uint64_t set_step_ = 1;  // the current training step, from repeated names in smaller sets
  uint32_t last_common_id_ = 0;  // response cache id of the last operation, or 0: see last_common_
  LastCommon last_common_;
  Clock::time_point arrived_{};     // when the current plan arrived
  bool is_own_ = false;             // this rank made the current plan
  std::vector<AgreedItem> agreed_;  // items of the plan; reused to avoid allocations
  std::vector<uint32_t> missing_;   // by item: a bit for each dtype that is not yet in a batch
};

}  // namespace hvd::runtime
