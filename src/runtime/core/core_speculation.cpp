// Speculative allreduce between two ranks (speculation.h): the runtime core's part of it.
#include <algorithm>

#include "base/text.h"
#include "runtime/core/runtime_core.h"
#include "runtime/negotiation/fusion_planner.h"

namespace hvd::runtime {
namespace {

bool is_of(const Plan& plan, std::span<const uint32_t> ids) {
  return plan.forgotten.empty() &&
         std::ranges::equal(plan.items, ids, [](const PlanItem& item, uint32_t id) {
           return !item.full && item.id == id;
         });
}

bool may_reduce_one_shot(const Request& request) {
  return request.op == HVD_ALLREDUCE && request.reduce_op != HVD_ADASUM &&
         request.device == HVD_CPU;
}

}  // namespace

// The next plan of the set, if it is of these names in one batch.
void RuntimeCore::build_speculative_plan(ProcessSet* set, std::span<const uint32_t> ids) {
  speculative_plan_.set = set->members->serial;
  speculative_plan_.sequence = set->plans;
  speculative_plan_.items.resize(ids.size());
  speculative_plan_.batches.resize(1);
  speculative_plan_.batches[0].clear();
  speculative_units_.clear();
  speculative_items_.assign(ids.size(), {});
  for (size_t i = 0; i < ids.size(); ++i) {
    speculative_plan_.items[i].id = ids[i];
    const CacheEntry* entry = set->cache.find(ids[i]);
    if (entry == nullptr || entry->name == nullptr) continue;
    Submission* submission = entry->name->announced;
    if (submission == nullptr) continue;
    speculative_items_[i] = {submission, &submission->request, &entry->rows};
    add_units(static_cast<uint32_t>(i), submission->request, entry->rows, &speculative_units_);
  }
  for (const FusionUnit& unit : speculative_units_)
    speculative_plan_.batches[0].push_back(unit.unit);
}

// Whether these names would be one batch that each rank can reduce by itself from both inputs. If
// so, eager_data_ is this rank's input.
bool RuntimeCore::prepare_eager_data(ProcessSet* set, std::span<const uint32_t> ids) {
  build_speculative_plan(set, ids);
  uint64_t bytes = 0;
  for (const FusionUnit& unit : speculative_units_) {
    if (!may_reduce_one_shot(*unit.request)) return false;
    bytes += unit.bytes;
  }
  if (bytes == 0 || bytes > Speculation::kMostBytes || speculative_units_.size() < ids.size()) {
    return false;
  }
  if (speculative_units_.size() > 1) {
    speculative_plan_.batches.clear();
    plan_fusion(speculative_units_, options_.fusion, &speculative_plan_.batches);
    if (speculative_plan_.batches.size() != 1) return false;
  }
  eager_tensors_.clear();
  if (!executor_.one_shot_inputs(set->queue, speculative_plan_.batches[0], speculative_items_,
                                 &eager_tensors_)) {
    return false;
  }
  eager_data_ = eager_tensors_[0];
  if (eager_tensors_.size() > 1) {
    packed_.clear();
    for (const ByteView tensor : eager_tensors_) packed_.put_raw(tensor);
    eager_data_ = packed_.view();
  }
  return true;
}

// The child: adds eager data to an announcement. Returns the names that the data is for, or none.
std::span<const uint32_t> RuntimeCore::attach_eager_data(ProcessSet* set, Announcement* ready) {
  Speculation& speculation = set->speculation;
  const std::span<const uint32_t> ids = speculation.take_fresh();
  if (ids.empty() || ids.size() != ready->ids.size() || !ready->proposals.empty() ||
      !ready->joined.empty() || set->ended || !executor_.idle(*set->queue)) {
    return {};
  }
  if (!speculation.matches_tentative_plan(ids) && !speculation.should_speculate()) return {};
  if (!prepare_eager_data(set, ids)) return {};
  std::ranges::sort(ready->ids);
  ready->eager_data = {eager_data_};
  return ids;
}

// The root: nothing is under way, and it is ready with names that the child has not announced.
void RuntimeCore::send_tentative_plan(ProcessSet* set) {
  Speculation& speculation = set->speculation;
  const std::span<const uint32_t> ids = speculation.take_fresh();
  if (ids.empty() || speculation.is_undecided() || set->ended || over() ||
      set->coordinator->has_ready() || !executor_.idle(*set->queue) ||
      !set->negotiator.waits_for_others_with(ids)) {
    return;
  }
  // Who tunes decides before a plan is known to the others.
  if (plan_listener_ != nullptr && set == everybody_) return;
  if (!speculation.should_speculate() || !prepare_eager_data(set, ids)) return;
  tentative_ = {set->members->serial,
                set->plans,
                speculation.announcements(),
                {ids.begin(), ids.end()},
                {eager_data_}};
  out_.clear();
  encode_head(tentative_, out_);
  speculation.sent(ids);
  const Status status = send(set->negotiator.place().children.front(), out_.view(), eager_data_);
  if (!status.ok()) fail_with(status, -1);
}

// The root: the child's eager data for a plan that was made, if it is here already. The plan then
// carries this rank's eager data.
ByteView RuntimeCore::add_eager_data_to_plan(ProcessSet* set, const Plan& plan) {
  Speculation& speculation = set->speculation;
  if (!speculation.has_kept()) return {};
  speculation.drop_kept();
  const std::span<const uint32_t> ids = speculation.kept_ids();
  if (!is_of(plan, ids) || plan.batches.size() != 1 || !executor_.idle(*set->queue) ||
      !prepare_eager_data(set, ids)) {
    return {};
  }
  set->coordinator->set_eager_data({eager_data_});
  return speculation.kept();
}

Status RuntimeCore::hear_announcement(ProcessSet* set, int32_t from, ByteView message) {
  HVD_RETURN_IF_ERROR(decode(message, &heard_));
  Speculation& speculation = set->speculation;
  const bool was_undecided = speculation.is_undecided();
  const bool matched = speculation.possible() && speculation.hear(heard_);
  if (was_undecided && !matched) ++counts_.eager_sends_wasted;
  HVD_RETURN_IF_ERROR(set->negotiator.receive(from, &heard_));
  if (!speculation.possible() || heard_.eager_data.empty()) return {};
  if (matched) return run_tentative_plan(set, heard_.eager_data.bytes);
  speculation.keep(heard_.ids, heard_.eager_data.bytes);
  report(set);
  if (!departed()) speculation.copy_kept();
  return {};
}

// The child knows that its announcement matched the tentative plan: no message is needed.
Status RuntimeCore::run_tentative_plan(ProcessSet* set, ByteView theirs) {
  Coordinator& coordinator = *set->coordinator;
  coordinator.add(&set->negotiator.ready());
  if (set->ended || over()) return {};
  const Plan& plan = coordinator.plan();
  Status status = internal_error("an announcement matched a tentative plan of other names");
  const std::span<const uint32_t> ids = set->speculation.sent_ids();
  if (is_of(plan, ids)) status = run_speculative_plan(set, ids, theirs);
  coordinator.planned();
  return status;
}

Status RuntimeCore::hear_tentative_plan(ProcessSet* set, ByteView message) {
  HVD_RETURN_IF_ERROR(decode(message, &tentative_));
  if (set->ended) return {};
  Speculation& speculation = set->speculation;
  if (!speculation.possible() || tentative_.plan != set->plans ||
      tentative_.after > speculation.announcements()) {
    return invalid_argument(cat("a tentative plan for plan ", tentative_.plan,
                                " after announcement ", tentative_.after, ", where ", set->plans,
                                " and ", speculation.announcements(), " are next"));
  }
  if (!speculation.matches(tentative_)) return {};
  return run_speculative_plan(set, tentative_.ids, tentative_.eager_data.bytes);
}

Status RuntimeCore::run_speculative_plan(ProcessSet* set, std::span<const uint32_t> ids,
                                         ByteView theirs) {
  build_speculative_plan(set, ids);
  return apply(set, speculative_plan_, theirs);
}

}  // namespace hvd::runtime
