#include "runtime/core/plan_application.h"

#include "base/text.h"

namespace hvd::runtime {

Status PlanApplication::apply(ProcessSet* set, const Plan& plan, ByteView theirs,
                              bool is_speculative) {
  // The set ended at its root before the root received the announcement that matched.
  if (plan.last && set->last_was_speculative && plan.sequence + 1 == set->plans) return {};
  if (plan.sequence != set->plans) {
    return internal_error(cat("plan ", plan.sequence, " of process set ", set->members->id,
                              " came where ", set->plans, " is next"));
  }
  ++set->plans;
  set->last_was_speculative = is_speculative;
  arrived_ = Clock::now();
  HVD_RETURN_IF_ERROR(forget(set, plan));
  agreed_.assign(plan.items.size(), {});
  for (size_t i = 0; i < plan.items.size(); ++i) {
    HVD_RETURN_IF_ERROR(resolve(set, plan.items[i], &agreed_[i]));
  }
  for (const auto& batch : plan.batches) HVD_RETURN_IF_ERROR(run(set, batch, theirs));
  return {};
}

Status PlanApplication::run(ProcessSet* set, const std::vector<PlanUnit>& batch, ByteView theirs) {
  if (batch.empty()) return internal_error("a plan has a batch of nothing");
  for (const PlanUnit& unit : batch) {
    if (agreed_[unit.item].request == nullptr) {
      return internal_error("a plan runs what it declares failed");
    }
  }
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

Status PlanApplication::forget(ProcessSet* set, const Plan& plan) {
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
Status PlanApplication::resolve(ProcessSet* set, const PlanItem& item, AgreedItem* agreed) {
  CacheEntry* entry = item.full ? nullptr : set->cache.find(item.id);
  Name* name = nullptr;
  if (item.full)
    name = parts_.names->find(set->members->serial, item.name);
  else if (entry != nullptr)
    name = entry->name;
  Submission* submission = name != nullptr ? name->announced : nullptr;
  if (submission == nullptr && !(item.full && set->has_joined)) {
    return internal_error(cat("a plan names '", printable(item.name), "' (", item.id,
                              "), which rank ", rank_, " did not announce"));
  }
  if (item.full && item.request.op == HVD_JOIN && item.error_code == HVD_OK) {
    parts_.sink->all_have_joined(set, item.request.root);
    return {};
  }
  if (submission != nullptr) note_agreement(item, *submission);
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
  if (submission != nullptr) submission->units_left = unit_count(submission->request);
  return {};
}

void PlanApplication::note_agreement(const PlanItem& item, const Submission& submission) {
  parts_.instruments->metrics.agreed(arrived_ - submission.since);
  parts_.instruments->metrics.count(item.full ? Counter::kCacheMisses : Counter::kCacheHits);
  parts_.instruments->trace.decide(submission, item.error_code == HVD_OK);
}

Status PlanApplication::learn(ProcessSet* set, const PlanItem& item, Submission* submission,
                              CacheEntry** entry) {
  CacheEntry* learned = set->cache.put(item.id, item.name);
  if (learned == nullptr) return internal_error("a plan gives a cache id that is not free");
  learned->request = submission != nullptr ? submission->request : item.request;
  learned->rows = item.rows;
  if (submission != nullptr && learned->name == nullptr) {
    learned->name = submission->name;
    submission->name->cached = learned;
    parts_.names->keep(submission->name, true);
  }
  *entry = learned;
  return {};
}

}  // namespace hvd::runtime
