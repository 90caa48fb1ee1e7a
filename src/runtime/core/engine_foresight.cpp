// What two ranks expect of each other (foresight.h): the engine's part of it.
#include <algorithm>

#include "base/text.h"
#include "runtime/core/engine.h"
#include "runtime/negotiation/fusion_planner.h"

namespace hvd::runtime {
namespace {

bool is_of(const Plan& plan, std::span<const uint32_t> ids) {
  return plan.forgotten.empty() &&
         std::ranges::equal(plan.items, ids, [](const PlanItem& item, uint32_t id) {
           return !item.full && item.id == id;
         });
}

bool may_go_whole(const Request& request) {
  return request.op == HVD_ALLREDUCE && request.reduce_op != HVD_ADASUM &&
         request.device == HVD_CPU;
}

}  // namespace

// The next plan of the set, if it is of these names in one batch.
void Engine::foresee_batch(ProcessSet* set, std::span<const uint32_t> ids) {
  foreseen_.set = set->members->serial;
  foreseen_.sequence = set->plans;
  foreseen_.items.resize(ids.size());
  foreseen_.batches.resize(1);
  foreseen_.batches[0].clear();
  foreseen_units_.clear();
  foreseen_items_.assign(ids.size(), {});
  for (size_t i = 0; i < ids.size(); ++i) {
    foreseen_.items[i].id = ids[i];
    const CacheEntry* entry = set->cache.find(ids[i]);
    if (entry == nullptr || entry->name == nullptr) continue;
    Submission* submission = entry->name->announced;
    if (submission == nullptr) continue;
    foreseen_items_[i] = {submission, &submission->request, &entry->rows};
    add_units(static_cast<uint32_t>(i), submission->request, entry->rows, &foreseen_units_);
  }
  for (const FusionUnit& unit : foreseen_units_) foreseen_.batches[0].push_back(unit.unit);
}

// Whether that would be a plan whose batch the ranks can reduce each by itself; then brings_ is what
// this rank brings to it.
bool Engine::foresee(ProcessSet* set, std::span<const uint32_t> ids) {
  foresee_batch(set, ids);
  uint64_t bytes = 0;
  for (const FusionUnit& unit : foreseen_units_) {
    if (!may_go_whole(*unit.request)) return false;
    bytes += unit.bytes;
  }
  if (bytes == 0 || bytes > Foresight::kMostBytes || foreseen_units_.size() < ids.size()) {
    return false;
  }
  if (foreseen_units_.size() > 1) {
    foreseen_.batches.clear();
    plan_fusion(foreseen_units_, options_.fusion, &foreseen_.batches);
    if (foreseen_.batches.size() != 1) return false;
  }
  foreseen_tensors_.clear();
  if (!executor_.wholes_of(set->lane, foreseen_.batches[0], foreseen_items_, &foreseen_tensors_)) {
    return false;
  }
  brings_ = foreseen_tensors_[0];
  if (foreseen_tensors_.size() > 1) {
    packed_.clear();
    for (const ByteView tensor : foreseen_tensors_) packed_.put_raw(tensor);
    brings_ = packed_.view();
  }
  return true;
}

// The child: what goes along with an announcement. The names to which it is brought, or none.
std::span<const uint32_t> Engine::bring(ProcessSet* set, Announcement* ready) {
  Foresight& foresight = set->foresight;
  const std::span<const uint32_t> ids = foresight.take_fresh();
  if (ids.empty() || ids.size() != ready->ids.size() || !ready->proposals.empty() ||
      !ready->joined.empty() || set->ended || !executor_.idle(*set->lane)) {
    return {};
  }
  if (!foresight.has_offer_of(ids) && !foresight.is_hopeful()) return {};
  if (!foresee(set, ids)) return {};
  std::ranges::sort(ready->ids);
  ready->brought = {brings_};
  return ids;
}

// The root: nothing is under way, and it is ready with names that the child has not announced.
void Engine::offer(ProcessSet* set) {
  Foresight& foresight = set->foresight;
  const std::span<const uint32_t> ids = foresight.take_fresh();
  if (ids.empty() || foresight.is_undecided() || set->ended || over() ||
      set->coordinator->has_ready() || !executor_.idle(*set->lane) ||
      !set->negotiator.waits_for_others_with(ids)) {
    return;
  }
  // Who tunes decides before a plan is known to the others.
  if (plan_listener_ != nullptr && set == everybody_) return;
  if (!foresight.is_hopeful() || !foresee(set, ids)) return;
  offer_ = {set->members->serial,
            set->plans,
            foresight.announcements(),
            {ids.begin(), ids.end()},
            {brings_}};
  out_.clear();
  encode_head(offer_, out_);
  foresight.offer(ids);
  const Status status = send(set->negotiator.place().children.front(), out_.view(), brings_);
  if (!status.ok()) fail_with(status, -1);
}

// The root: what the child has brought already to a plan that was made. With it goes what this rank
// brings.
ByteView Engine::bring_to_plan(ProcessSet* set, const Plan& plan) {
  Foresight& foresight = set->foresight;
  if (!foresight.has_kept()) return {};
  foresight.drop_kept();
  const std::span<const uint32_t> ids = foresight.kept_ids();
  if (!is_of(plan, ids) || plan.batches.size() != 1 || !executor_.idle(*set->lane) ||
      !foresee(set, ids)) {
    return {};
  }
  set->coordinator->bring({brings_});
  return foresight.kept();
}

Status Engine::hear_announcement(ProcessSet* set, int32_t from, ByteView message) {
  HVD_RETURN_IF_ERROR(decode(message, &heard_));
  Foresight& foresight = set->foresight;
  const bool was_offered = foresight.is_undecided();
  const bool met = foresight.possible() && foresight.hear(heard_);
  if (was_offered && !met) ++counts_.sent_in_vain;
  HVD_RETURN_IF_ERROR(set->negotiator.receive(from, &heard_));
  if (!foresight.possible() || heard_.brought.empty()) return {};
  if (met) return meet_offer(set, heard_.brought.bytes);
  foresight.keep(heard_.ids, heard_.brought.bytes);
  report(set);
  if (!departed()) foresight.copy_kept();
  return {};
}

// The child knows that its announcement met the offer, and is told nothing.
Status Engine::meet_offer(ProcessSet* set, ByteView theirs) {
  Coordinator& coordinator = *set->coordinator;
  coordinator.add(&set->negotiator.ready());
  if (set->ended || over()) return {};
  const Plan& plan = coordinator.plan();
  Status status = internal_error("an offer was met by other names than it was made of");
  const std::span<const uint32_t> ids = set->foresight.offered();
  if (is_of(plan, ids)) status = run_foreseen(set, ids, theirs);
  coordinator.planned();
  return status;
}

Status Engine::hear_offer(ProcessSet* set, ByteView message) {
  HVD_RETURN_IF_ERROR(decode(message, &offer_));
  if (set->ended) return {};
  Foresight& foresight = set->foresight;
  if (!foresight.possible() || offer_.plan != set->plans ||
      offer_.after > foresight.announcements()) {
    return invalid_argument(cat("an offer of plan ", offer_.plan, " after announcement ",
                                offer_.after, ", where ", set->plans, " and ",
                                foresight.announcements(), " are next"));
  }
  if (!foresight.meets(offer_)) return {};
  return run_foreseen(set, offer_.ids, offer_.brought.bytes);
}

Status Engine::run_foreseen(ProcessSet* set, std::span<const uint32_t> ids, ByteView theirs) {
  foresee_batch(set, ids);
  return apply(set, foreseen_, theirs);
}

}  // namespace hvd::runtime
