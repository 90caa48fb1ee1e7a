// The root's part of the negotiation: from names that are ready on all ranks to plans. Judges
// them, gives cache ids, fuses. Belongs to rank 0's thread that makes progress.
#pragma once

#include <deque>
#include <string>
#include <unordered_set>

#include "runtime/fusion_planner.h"
#include "runtime/message.h"
#include "runtime/response_cache.h"

namespace hvd::runtime {

struct CoordinatorOptions {
  int32_t size = 1;
  uint64_t fusion_threshold = 0;
  uint32_t cache_capacity = 0;
};

class Coordinator {
 public:
  Coordinator(const CoordinatorOptions& options, const ResponseCache* cache);

  // Takes the content of what became ready.
  void add(Announcement* ready);
  bool has_ready() const { return !plan_.items.empty(); }
  // Of those not planned yet.
  uint64_t ready_bytes() const { return ready_bytes_; }

  // Everything that is ready, as the next plan. Valid until the next call of add.
  const Plan& plan();
  // The plan was applied here and sent; makes room for the next.
  void planned();

 private:
  void add_proposal(Proposal&& proposal);
  Status arrange_rows(Proposal* proposal) const;
  uint32_t id_for(const std::string& text);
  const Request& request_of(const PlanItem& item) const;

  const CoordinatorOptions options_;
  const ResponseCache* const cache_;
  Plan plan_;
  uint64_t ready_bytes_ = 0;
  uint64_t next_sequence_ = 0;
  std::vector<FusionUnit> units_;
  // An id is given at the second agreement, so that names used once do not fill the cache.
  uint32_t next_id_ = 1;
  std::unordered_set<std::string> seen_;
  std::deque<std::string> seen_order_;
};

}  // namespace hvd::runtime
