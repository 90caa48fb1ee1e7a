// The root's side of the negotiation of one process set: makes plans from the names that are ready
// on all ranks. The root's Negotiator decides which names are ready, and passes them to add(). The
// coordinator checks their requests, assigns and revokes cache ids, and fuses tensors into batches.
// ProcessSetState owns the coordinator on the root; the runtime core calls it, on the progress thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/negotiation/fusion_planner.h"
#include "runtime/negotiation/response_cache.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

struct CoordinatorOptions {
  std::vector<int32_t> members;  // ascending
  uint32_t set = 0;              // serial number
  FusionOptions fusion;
  uint32_t cache_capacity = 0;
};

class Coordinator {
 public:
  Coordinator(CoordinatorOptions options, const ResponseCache* cache);

  // Takes the names that became ready on all ranks, and leaves `ready` empty.
  void add(Announcement* ready);
  bool has_ready() const { return !plan_.items.empty(); }
  const std::vector<PlanItem>& ready() const { return plan_.items; }
  // Returns the bytes of ready tensors that no plan contains yet.
  uint64_t ready_bytes() const { return ready_bytes_; }

  // Makes the next plan of all ready names. Valid until the next call of add() or planned().
  const Plan& plan();
  // Makes the last plan, which has no items.
  const Plan& last_plan();
  // Sets this rank's eager data for the current plan, until planned() is called.
  void set_eager_data(EagerData data) { plan_.eager_data = data; }
  // Prepares for the next plan, after the current plan was applied here and sent.
  void planned();

  // Sets the options for the next plan and later plans.
  void set_fusion(const FusionOptions& fusion) { options_.fusion = fusion; }

 private:
  void add_id(uint32_t id);
  void add_proposal(Proposal&& proposal);
  void add_join();
  void count_bytes(const Request& request);
  Status judge(Proposal* proposal) const;
  Status arrange_rows(Proposal* proposal) const;
  std::string joined_text() const;
  void give_ids();
  const Request& request_of(const PlanItem& item) const;
  const std::vector<RankRows>& rows_of(const PlanItem& item) const;

  CoordinatorOptions options_;
  const ResponseCache* const cache_;
  CachePolicy policy_;
  Plan plan_;
  uint64_t ready_bytes_ = 0;
  std::vector<FusionUnit> units_;
  std::vector<PlanItem*> new_names_;  // new names in plan_
  std::vector<int32_t> joined_;       // ranks that have joined, in that order
};

}  // namespace hvd::runtime
