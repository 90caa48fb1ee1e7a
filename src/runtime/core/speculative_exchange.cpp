#include "runtime/core/speculative_exchange.h"

#include <algorithm>

#include "base/text.h"

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

// Builds the set's next plan on the assumption that it has exactly these names in one batch.
void SpeculativeExchange::build_plan(ProcessSetState* set, std::span<const uint32_t> ids) {
  plan_.set = set->members->serial;
  plan_.sequence = set->plans;
  plan_.items.resize(ids.size());
  plan_.batches.resize(1);
  plan_.batches[0].clear();
  units_.clear();
  items_.assign(ids.size(), {});
  for (size_t i = 0; i < ids.size(); ++i) {
    plan_.items[i].id = ids[i];
    const CacheEntry* entry = set->cache.find(ids[i]);
    if (entry == nullptr || entry->name == nullptr) continue;
    Submission* submission = entry->name->announced;
    if (submission == nullptr) continue;
    items_[i] = {submission, &submission->request, &entry->rows};
    add_units(static_cast<uint32_t>(i), submission->request, entry->rows, &units_);
  }
  for (const FusionUnit& unit : units_) plan_.batches[0].push_back(unit.unit);
}

// Returns whether these names would form one batch that each rank can reduce from both inputs. If
// so, sets eager_data_ to this rank's input.
bool SpeculativeExchange::prepare_eager_data(ProcessSetState* set, std::span<const uint32_t> ids) {
  build_plan(set, ids);
  uint64_t bytes = 0;
  for (const FusionUnit& unit : units_) {
    if (!may_reduce_one_shot(*unit.request)) return false;
    bytes += unit.bytes;
  }
  if (bytes == 0 || bytes > Speculation::kMostBytes || units_.size() < ids.size()) return false;
  if (units_.size() > 1) {
    plan_.batches.clear();
    plan_fusion(units_, *fusion_, &plan_.batches);
    if (plan_.batches.size() != 1) return false;
  }
  tensors_.clear();
  if (!executor_->one_shot_inputs(set->queue, plan_.batches[0], items_, &tensors_)) return false;
  eager_data_ = tensors_[0];
  if (tensors_.size() > 1) {
    packed_.clear();
    for (const ByteView tensor : tensors_) packed_.put_raw(tensor);
    eager_data_ = packed_.view();
  }
  return true;
}

std::span<const uint32_t> SpeculativeExchange::attach_eager_data(ProcessSetState* set,
                                                                 Announcement* ready) {
  Speculation& speculation = set->speculation;
  const std::span<const uint32_t> ids = speculation.take_fresh();
  if (ids.empty() || ids.size() != ready->ids.size() || !ready->proposals.empty() ||
      !ready->joined.empty() || set->ended || !executor_->idle(*set->queue)) {
    return {};
  }
  if (!speculation.matches_tentative_plan(ids) && !speculation.should_speculate()) return {};
  if (!prepare_eager_data(set, ids)) return {};
  std::ranges::sort(ready->ids);
  ready->eager_data = {eager_data_};
  return ids;
}

SpeculativeExchange::Match SpeculativeExchange::announced(ProcessSetState* set,
                                                          std::span<const uint32_t> ids) {
  const ByteView theirs = set->speculation.announce(ids);
  if (theirs.empty()) return {};
  build_plan(set, ids);
  return {&plan_, theirs};
}

Result<SpeculativeExchange::Match> SpeculativeExchange::receive_tentative_plan(ProcessSetState* set,
                                                                               ByteView message) {
  HVD_RETURN_IF_ERROR(decode(message, &tentative_));
  if (set->ended) return Match{};
  Speculation& speculation = set->speculation;
  if (!speculation.possible() || tentative_.plan != set->plans ||
      tentative_.after > speculation.announcements()) {
    return invalid_argument(cat("a tentative plan for plan ", tentative_.plan,
                                " after announcement ", tentative_.after, ", where ", set->plans,
                                " and ", speculation.announcements(), " are next"));
  }
  if (!speculation.matches(tentative_)) return Match{};
  build_plan(set, tentative_.ids);
  return Match{&plan_, tentative_.eager_data.bytes};
}

void SpeculativeExchange::receive_plan(ProcessSetState* set, const Plan& plan) {
  const bool has_eager_data = !plan.eager_data.empty();
  if (set->speculation.is_undecided() && !has_eager_data) ++wasted_sends_;
  set->speculation.plan_came(has_eager_data);
}

Status SpeculativeExchange::close(ProcessSetState* set) {
  Speculation& speculation = set->speculation;
  if (!speculation.possible() || speculation.is_closed()) return {};
  speculation.close();
  Announcement none;
  none.set = set->members->serial;
  none.plans = set->plans;
  out_.clear();
  encode(none, out_);
  return links_->send(set->negotiator.place().parent, out_.view());
}

Status SpeculativeExchange::send_tentative_plan(ProcessSetState* set, bool is_allowed) {
  Speculation& speculation = set->speculation;
  const std::span<const uint32_t> ids = speculation.take_fresh();
  if (ids.empty() || !is_allowed || speculation.is_undecided() || set->ended ||
      set->coordinator->has_ready() || !executor_->idle(*set->queue) ||
      !set->negotiator.waits_for_others_with(ids)) {
    return {};
  }
  if (!speculation.should_speculate() || !prepare_eager_data(set, ids)) return {};
  tentative_ = {set->members->serial,
                set->plans,
                speculation.announcements(),
                {ids.begin(), ids.end()},
                {eager_data_}};
  out_.clear();
  encode_head(tentative_, out_);
  speculation.sent(ids);
  return links_->send(set->negotiator.place().children.front(), out_.view(), eager_data_);
}

bool SpeculativeExchange::receive(ProcessSetState* set, const Announcement& announcement) {
  Speculation& speculation = set->speculation;
  const bool was_undecided = speculation.is_undecided();
  const bool matched = speculation.possible() && speculation.receive(announcement);
  if (was_undecided && !matched) ++wasted_sends_;
  return matched;
}

const Plan* SpeculativeExchange::matched_plan(ProcessSetState* set, const Plan& plan) {
  const std::span<const uint32_t> ids = set->speculation.sent_ids();
  if (!is_of(plan, ids)) return nullptr;
  build_plan(set, ids);
  return &plan_;
}

ByteView SpeculativeExchange::add_eager_data_to_plan(ProcessSetState* set, const Plan& plan) {
  Speculation& speculation = set->speculation;
  if (!speculation.has_kept()) return {};
  speculation.drop_kept();
  const std::span<const uint32_t> ids = speculation.kept_ids();
  if (!is_of(plan, ids) || plan.batches.size() != 1 || !executor_->idle(*set->queue) ||
      !prepare_eager_data(set, ids)) {
    return {};
  }
  set->coordinator->set_eager_data({eager_data_});
  return speculation.kept();
}

}  // namespace hvd::runtime
