#include "runtime/core/plan_application.h"

#include <algorithm>

#include "base/operations/op_traits.h"
#include "base/text.h"
#include "runtime/negotiation/agreement.h"
#include "runtime/negotiation/fusion_planner.h"

namespace hvd::runtime {
namespace {

uint32_t bit_of(int32_t dtype) { return dtype < 32 ? uint32_t{1} << dtype : 0; }

// Returns a bit for each dtype of the request; add_units makes a unit for each.
uint32_t units_of(const Request& request) {
  uint32_t bits = request.tensors.empty() ? bit_of(HVD_UINT8) : 0;
  for (const TensorSpec& tensor : request.tensors) bits |= bit_of(tensor.dtype);
  return bits;
}

// Copies the agreed device to this rank's submission, because the cache id must mean one device on each rank.
void adopt_place(const Request& agreed, Submission* submission) {
  if (submission->request.device != kStagedDevice || agreed.device == kStagedDevice) return;
  submission->request.device =
      agreed.is_on_device() ? submission->own_device : static_cast<int32_t>(HVD_CPU);
}

}  // namespace

Status PlanApplication::apply(ProcessSetState* set, const Plan& plan, ByteView theirs,
                              bool is_speculative) {
  if (plan.sequence != set->plans) {
    return internal_error(cat("plan ", plan.sequence, " of process set ", set->members->id,
                              " came where ", set->plans, " is next"));
  }
  ++set->plans;
  arrived_ = Clock::now();
  is_own_ = set->coordinator.has_value() || is_speculative;
  HVD_RETURN_IF_ERROR(forget(set, plan));
  agreed_.assign(plan.items.size(), {});
  for (size_t i = 0; i < plan.items.size(); ++i) {
    HVD_RETURN_IF_ERROR(resolve(set, plan.items[i], &agreed_[i]));
  }
  if (set->members->id == 0 && !plan.items.empty()) note_last_common(plan.items.back());
  if (!is_own_) HVD_RETURN_IF_ERROR(check_batches(plan));
  for (const auto& batch : plan.batches) HVD_RETURN_IF_ERROR(run(set, batch, theirs));
  set->needs_turn = parts_.executor->end_plan(set->queue);
  return {};
}

// Checks that every agreed item is in the batches once for each of its dtypes, and that the items
// of a batch may share it.
Status PlanApplication::check_batches(const Plan& plan) {
  missing_.assign(agreed_.size(), 0);
  for (size_t i = 0; i < agreed_.size(); ++i) {
    if (agreed_[i].request != nullptr) missing_[i] = units_of(*agreed_[i].request);
  }
  for (const auto& batch : plan.batches) {
    if (batch.empty()) return internal_error("a plan has a batch of nothing");
    for (const PlanUnit& unit : batch) {
      const uint32_t bit = bit_of(unit.dtype);
      if ((missing_[unit.item] & bit) == 0) {
        return internal_error(cat("a plan runs ", dtype_name(unit.dtype), " of item ", unit.item,
                                  ", which it did not agree on or runs already"));
      }
      missing_[unit.item] &= ~bit;
      const PlanUnit& first = batch.front();
      if (&unit != &first && !may_share_batch({first, agreed_[first.item].request, 0},
                                              {unit, agreed_[unit.item].request, 0})) {
        return internal_error(cat("a plan runs items ", first.item, " and ", unit.item,
                                  " in one batch, and they differ"));
      }
    }
  }
  const auto left = std::ranges::find_if(missing_, [](uint32_t bits) { return bits != 0; });
  if (left == missing_.end()) return {};
  return internal_error(
      cat("a plan agrees on item ", left - missing_.begin(), " and does not run all of it"));
}

// Checks an item of another rank's plan against this rank's state and submission.
Status PlanApplication::check(const ProcessSetState& set, const PlanItem& item,
                              const Submission* submission) const {
  if (submission != nullptr && submission->planned) {
    return internal_error(
        cat("a plan names '", printable(submission->name->text), "', which is planned already"));
  }
  if (item.error_code != HVD_OK) return {};
  const SetMembers& members = *set.members;
  const Request& agreed = item.request;
  if (item.full && agreed.op == HVD_JOIN) {
    if (set.has_joined && item.name == kJoinName && members.index_of(agreed.root) >= 0) return {};
    return internal_error(cat("a plan ends a join that rank ", rank_, " does not wait for"));
  }
  if (submission == nullptr) {
    if (traits_of(agreed.op).runs_with_joined || is_of_members(agreed.op)) return {};
    return internal_error(cat("a plan runs ", operation_text(agreed.op, item.name),
                              " without rank ", rank_, ", which has joined"));
  }
  if (!item.full) {
    if (submission->announced_id == item.id) return {};
    return internal_error(cat("a plan has '", printable(submission->name->text), "' as cached (",
                              item.id, "), and rank ", rank_, " announced it as new"));
  }
  const Request& own = submission->request;
  if (auto sentence = disagreement(item.name, {rank_, own}, {members.ranks.front(), agreed})) {
    return invalid_argument(*std::move(sentence));
  }
  HVD_RETURN_IF_ERROR(check_rows(item.name, own, item.rows, members.ranks));
  if (!has_rank_rows(own.op) ||
      item.rows[static_cast<size_t>(members.index)].rows == rows_of(own)) {
    return {};
  }
  return internal_error(
      cat("a plan has other rows of '", printable(item.name), "' than rank ", rank_, " brings"));
}

Status PlanApplication::run(ProcessSetState* set, const std::vector<PlanUnit>& batch,
                            ByteView theirs) {
  if (theirs.empty()) {
    parts_.executor->add(set->queue, batch, agreed_);
  } else {
    HVD_RETURN_IF_ERROR(parts_.executor->run_one_shot(set->queue, batch, agreed_,
                                                      set->speculation.aligned(theirs)));
    ++counts_.speculative_batches;
  }
  ++counts_.batches;
  if (batch.size() > 1) counts_.fused_tensors += batch.size();
  return {};
}

Status PlanApplication::forget(ProcessSetState* set, const Plan& plan) {
  for (const uint32_t id : plan.forgotten) {
    CacheEntry* entry = set->cache.find(id);
    if (entry == nullptr) return internal_error(cat("a plan takes back id ", id, ", unknown here"));
    Name* name = entry->name;
    set->negotiator.forget(entry, plan.sequence);
    if (name == nullptr) continue;
    name->cached = nullptr;
    parts_.names->keep(name, false);
  }
  return {};
}

// Finds this rank's submission for a plan item, and updates the response cache from the item.
Status PlanApplication::resolve(ProcessSetState* set, const PlanItem& item, AgreedItem* agreed) {
  CacheEntry* entry = item.full ? nullptr : set->cache.find(item.id);
  Name* name = nullptr;
  if (item.full)
    name = parts_.names->find(set->members->serial, item.name);
  else if (entry != nullptr)
    name = entry->name;
  Submission* submission = name != nullptr ? name->announced : nullptr;
  const bool is_for_others = item.full && is_of_members(item.request.op) &&
                             !std::ranges::binary_search(announcers_of(item.request), rank_);
  if (submission == nullptr && !(item.full && set->has_joined) && !is_for_others) {
    return internal_error(cat("a plan names '", printable(item.name), "' (", item.id,
                              "), which rank ", rank_, " did not announce"));
  }
  if (!is_own_) HVD_RETURN_IF_ERROR(check(*set, item, submission));
  if (submission != nullptr && item.full) adopt_place(item.request, submission);
  if (item.full && item.request.op == HVD_JOIN && item.error_code == HVD_OK) {
    if (set->members->id == 0) parts_.instruments->steps->count_anew();
    parts_.sink->all_have_joined(set, item.request.root);
    return {};
  }
  if (submission != nullptr) note_agreement(*set->members, item, *submission);
  if (submission != nullptr) {
    submission->planned = true;
    set->speculation.planned();
  }
  if (item.error_code != HVD_OK) {
    if (submission != nullptr) {
      parts_.sink->complete(submission, Status(static_cast<Code>(item.error_code), item.error));
    }
    return {};
  }
  if (item.full && is_registration(item.request.op))
    return parts_.sink->register_sets(item, submission);
  if (item.full && item.id != 0) HVD_RETURN_IF_ERROR(learn(set, item, submission, &entry));
  agreed->submission = submission;
  agreed->request = submission != nullptr ? &submission->request : &item.request;
  agreed->rows = entry != nullptr ? &entry->rows : &item.rows;
  if (submission != nullptr) {
    submission->units_left = submission->units_ahead = unit_count(submission->request);
  }
  return {};
}

// Stores the latest operation; of a cached operation only the id, since this function runs for every plan of a step.
void PlanApplication::note_last_common(const PlanItem& item) {
  if (!item.full) {
    last_common_id_ = item.id;
  } else if (item.error_code == HVD_OK && item.request.op != HVD_JOIN &&
             !is_registration(item.request.op)) {
    last_common_id_ = 0;
    last_common_ = {item.request.op, item.name};
  }
}

PlanApplication::LastCommon PlanApplication::last_common(const ProcessSetState& all) const {
  if (last_common_id_ == 0) return last_common_;
  const CacheEntry* entry = all.cache.find(last_common_id_);
  if (entry == nullptr) entry = all.cache.find_forgotten(last_common_id_);
  return entry == nullptr ? LastCommon{} : LastCommon{entry->request.op, entry->text};
}

void PlanApplication::note_agreement(const SetMembers& set, const PlanItem& item,
                                     const Submission& submission) {
  const auto waited = arrived_ - submission.since;
  parts_.instruments->metrics->agreed(waited);
  parts_.instruments->metrics->count(item.full ? Counter::kCacheMisses : Counter::kCacheHits);
  StepLog& log = *parts_.instruments->steps;
  const bool is_of_all = set.id == 0;
  uint64_t& step = is_of_all ? step_ : set_step_;
  // Names of smaller sets differ between ranks, so use them only if the set of all ranks has no names.
  if (submission.name->step == step && (is_of_all || step_ == 1)) {
    parts_.instruments->metrics->stepped(arrived_);
    log.step_ended(arrived_, *parts_.instruments->metrics, item.id);
    if (step == 1) log.count_anew();
  }
  if (submission.name->step == step) ++step;
  // Count only the set of all ranks: waits show which ranks are late, but ranks outside a smaller set do not wait in
  // it.
  if (is_of_all) log.wait_ended(waited, item.id);
  submission.name->step = step;
  parts_.instruments->trace.decide(submission, item.error_code == HVD_OK);
}

Status PlanApplication::learn(ProcessSetState* set, const PlanItem& item, Submission* submission,
                              CacheEntry** entry) {
  CacheEntry* learned = set->cache.put(item.id, item.name);
  if (learned == nullptr) return internal_error("a plan gives a cache id that is not free");
  learned->request = submission != nullptr ? submission->request : item.request;
  learned->rows = item.rows;
  if (set->members->id == 0)
    parts_.instruments->names->set(ResponseCache::slot_of(item.id), item.name);
  if (submission != nullptr && learned->name == nullptr) {
    learned->name = submission->name;
    submission->name->cached = learned;
    parts_.names->keep(submission->name, true);
  }
  *entry = learned;
  return {};
}

}  // namespace hvd::runtime
