// The negotiation's part of a runtime core: reports up the tree of a process set, plans down.
#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "runtime/core/runtime_core.h"

namespace hvd::runtime {
namespace {

// While this many batches are under way the root lets further names gather, so that what comes
// in one by one leaves together.
constexpr size_t kBusy = 2;

}  // namespace

// What became ready in the subtree goes up; at the root it becomes a plan.
void RuntimeCore::report() {
  // A plan may add sets.
  for (size_t i = 0; i < sets_.size(); ++i) report(sets_[i].get());
}

void RuntimeCore::report(ProcessSet* set) {
  Announcement& ready = set->negotiator.ready();
  if (set->coordinator) {
    // Two ranks that expect the same of each other agree on the order too.
    if (set->speculation.possible()) std::ranges::sort(ready.ids);
    if (!ready.empty()) set->coordinator->add(&ready);
    plan(set);
    if (set->speculation.possible()) send_tentative_plan(set);
    return;
  }
  if (ready.empty()) return;
  const std::span<const uint32_t> eager_data = attach_eager_data(set, &ready);
  counts_.short_announcements += ready.ids.size();
  ready.set = set->members->serial;
  ready.plans = set->plans;
  out_.clear();
  encode_head(ready, out_);
  Status status = send(set->negotiator.place().parent, out_.view(), ready.eager_data.bytes);
  ready.clear();
  if (const ByteView theirs = set->speculation.announce(eager_data);
      status.ok() && !theirs.empty()) {
    status = run_speculative_plan(set, eager_data, theirs);
  }
  if (!status.ok()) fail_with(status, -1);
}

void RuntimeCore::plan(ProcessSet* set) {
  Coordinator& coordinator = *set->coordinator;
  if (!coordinator.has_ready() || set->ended || over() || awaits_announcement(*set)) return;
  if (executor_.outstanding(*set->queue) >= kBusy &&
      coordinator.ready_bytes() < options_.fusion.threshold) {
    return;
  }
  if (plan_listener_ != nullptr && set == everybody_) {
    plan_listener_->planning(coordinator.ready(), coordinator.ready_bytes());
    if (over()) return;
  }
  const Plan& plan = coordinator.plan();
  if (plan_listener_ != nullptr && set == everybody_) plan_listener_->planned(plan.items);
  const ByteView theirs = add_eager_data_to_plan(set, plan);
  Status status = send_plan(set, plan);
  if (status.ok()) status = apply(set, plan, theirs);
  coordinator.planned();
  if (!status.ok()) fail_with(status, -1);
  hear_what_was_early();
}

Status RuntimeCore::send_plan(ProcessSet* set, const Plan& plan) {
  const auto& children = set->negotiator.place().children;
  if (children.empty()) return {};
  out_.clear();
  encode_head(plan, out_);
  for (const int32_t child : children) {
    HVD_RETURN_IF_ERROR(send(child, out_.view(), plan.eager_data.bytes));
  }
  return {};
}

Status RuntimeCore::handle_of_set(MessageKind kind, int32_t from, ByteView message) {
  uint32_t serial = 0;
  HVD_RETURN_IF_ERROR(peek_set(message, &serial));
  if (serial > last_serial_) {
    constexpr size_t kMostEarlyBytes = 64 << 20;
    early_bytes_ += message.size();
    if (early_bytes_ > kMostEarlyBytes) {
      return invalid_argument("too much for process sets that this rank does not have");
    }
    early_.push_back({serial, from, {message.begin(), message.end()}});
    return {};
  }
  ProcessSet* set = set_of(serial);
  if (set == nullptr) return {};  // removed, while this was on its way
  if (kind == MessageKind::kAnnouncement) return hear_announcement(set, from, message);
  if (from != set->negotiator.place().parent) {
    return invalid_argument("a plan from a rank that is not above this one");
  }
  if (kind == MessageKind::kTentativePlan) return hear_tentative_plan(set, message);
  HVD_RETURN_IF_ERROR(decode(message, &heard_plan_));
  if (set->speculation.is_undecided() && heard_plan_.eager_data.empty())
    ++counts_.eager_sends_wasted;
  set->speculation.plan_came(!heard_plan_.eager_data.empty());
  // What was reported by ids that this plan takes back is said before they are.
  report(set);
  for (const int32_t child : set->negotiator.place().children) {
    HVD_RETURN_IF_ERROR(send(child, message));
  }
  HVD_RETURN_IF_ERROR(apply(set, heard_plan_, heard_plan_.eager_data.bytes));
  hear_what_was_early();
  return {};
}

Status RuntimeCore::apply(ProcessSet* set, const Plan& plan, ByteView theirs) {
  if (plan.last && set->last_was_speculative && plan.sequence + 1 == set->plans) {
    // The set ended at its root before the root received the announcement that matched.
    end_set(set);
    return {};
  }
  if (plan.sequence != set->plans) {
    return internal_error(cat("plan ", plan.sequence, " of process set ", set->members->id,
                              " came where ", set->plans, " is next"));
  }
  ++set->plans;
  set->last_was_speculative = &plan == &speculative_plan_;
  plan_heard_ = Clock::now();
  HVD_RETURN_IF_ERROR(forget(set, plan));
  agreed_.assign(plan.items.size(), {});
  for (size_t i = 0; i < plan.items.size(); ++i) {
    HVD_RETURN_IF_ERROR(resolve(set, plan.items[i], &agreed_[i]));
  }
  for (const auto& batch : plan.batches) {
    if (batch.empty()) return internal_error("a plan has a batch of nothing");
    for (const PlanUnit& unit : batch) {
      if (agreed_[unit.item].request == nullptr) {
        return internal_error("a plan runs what it declares failed");
      }
    }
    if (theirs.empty()) {
      executor_.add(set->queue, batch, agreed_);
    } else {
      HVD_RETURN_IF_ERROR(
          executor_.run_one_shot(set->queue, batch, agreed_, set->speculation.aligned(theirs)));
      ++counts_.speculative_batches;
    }
    ++counts_.batches;
    if (batch.size() > 1) counts_.fused_tensors += batch.size();
  }
  if (plan.last) end_set(set);
  return {};
}

Status RuntimeCore::forget(ProcessSet* set, const Plan& plan) {
  for (const uint32_t id : plan.forgotten) {
    CacheEntry* entry = set->cache.find(id);
    if (entry == nullptr) return internal_error(cat("a plan takes back id ", id, ", unknown here"));
    Name* name = entry->name;
    set->negotiator.forget(entry, plan.sequence);
    if (name == nullptr) continue;
    name->cached = nullptr;
    names_->keep(name, false);
  }
  return {};
}

// Finds what this rank announced under an item's name, and remembers what the plan teaches.
Status RuntimeCore::resolve(ProcessSet* set, const PlanItem& item, AgreedItem* agreed) {
  CacheEntry* entry = item.full ? nullptr : set->cache.find(item.id);
  Name* name = nullptr;
  if (item.full)
    name = names_->find(set->members->serial, item.name);
  else if (entry != nullptr)
    name = entry->name;
  Submission* submission = name != nullptr ? name->announced : nullptr;
  if (submission == nullptr && !(item.full && set->has_joined)) {
    return internal_error(cat("a plan names '", printable(item.name), "' (", item.id,
                              "), which rank ", options_.rank, " did not announce"));
  }
  if (item.full && item.request.op == HVD_JOIN && item.error_code == HVD_OK) {
    all_have_joined(set, item.request.root);
    return {};
  }
  if (submission != nullptr) note_agreement(item, *submission);
  if (submission != nullptr) {
    submission->planned = true;
    set->speculation.planned();
  }
  if (item.error_code != HVD_OK) {
    if (submission != nullptr) {
      complete(submission, Status(static_cast<Code>(item.error_code), item.error));
    }
    return {};
  }
  if (item.full && is_registration(item.request.op)) return register_sets(item, submission);
  if (item.full && item.id != 0) HVD_RETURN_IF_ERROR(learn(set, item, submission, &entry));
  agreed->submission = submission;
  agreed->request = submission != nullptr ? &submission->request : &item.request;
  agreed->rows = entry != nullptr ? &entry->rows : &item.rows;
  if (submission != nullptr) submission->units_left = unit_count(submission->request);
  return {};
}

void RuntimeCore::note_agreement(const PlanItem& item, const Submission& submission) {
  instruments_.metrics.agreed(plan_heard_ - submission.since);
  instruments_.metrics.count(item.full ? Counter::kCacheMisses : Counter::kCacheHits);
  instruments_.trace.decide(submission, item.error_code == HVD_OK);
}

Status RuntimeCore::learn(ProcessSet* set, const PlanItem& item, Submission* submission,
                          CacheEntry** entry) {
  CacheEntry* learned = set->cache.put(item.id, item.name);
  if (learned == nullptr) return internal_error("a plan gives a cache id that is not free");
  learned->request = submission != nullptr ? submission->request : item.request;
  learned->rows = item.rows;
  if (submission != nullptr && learned->name == nullptr) {
    learned->name = submission->name;
    submission->name->cached = learned;
    names_->keep(submission->name, true);
  }
  *entry = learned;
  return {};
}

void RuntimeCore::all_have_joined(ProcessSet* set, int32_t last) {
  set->negotiator.all_have_joined();
  set->has_joined = false;
  const std::vector<Submission*> waiting = std::exchange(set->after_join, {});
  Name* name = names_->find(set->members->serial, kJoinName);
  if (name != nullptr && name->announced != nullptr) {
    Submission* join = name->announced;
    join->planned = true;
    join->last_joined_rank = last;
    complete(join, {});
  }
  for (Submission* submission : waiting) announce(set, submission);
}

}  // namespace hvd::runtime
