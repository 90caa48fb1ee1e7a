// The process sets' part of a runtime core: how they come and go while the others work.
#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "runtime/core/runtime_core.h"

namespace hvd::runtime {

ProcessSet* RuntimeCore::set_of(uint32_t serial) {
  if (serial == 0) return everybody_;
  const auto found = std::lower_bound(
      sets_.begin(), sets_.end(), serial,
      [](const auto& set, uint32_t wanted) { return set->members->serial < wanted; });
  return found == sets_.end() || (*found)->members->serial != serial ? nullptr : found->get();
}

bool RuntimeCore::is_member(int32_t process_set, int32_t rank) const {
  const auto members = set_table_->find(process_set);
  return members != nullptr && members->index_of(rank) >= 0;
}

Status RuntimeCore::open_set(std::shared_ptr<const SetMembers> members) {
  const int32_t* machines = link().hosts(controller_->context());
  auto set = std::make_unique<ProcessSet>(std::move(members), options_.rank,
                                          std::span(machines, static_cast<size_t>(options_.size)),
                                          options_.fusion, options_.cache_capacity);
  HVD_RETURN_IF_ERROR(executor_.open_queue(set->members, &set->queue));
  sets_.push_back(std::move(set));
  return {};
}

// Every rank comes here with the same item, in the same order.
Status RuntimeCore::register_sets(const PlanItem& item, Submission* submission) {
  HVD_CHECK(submission != nullptr);
  if (item.request.op == kRemoveProcessSet) return remove_set(item.request.root, submission);
  for (auto& ranks : sets_of(item.request)) {
    const Status status = add_set(std::move(ranks), submission);
    if (!status.ok() && status.code() != Code::kAlreadyExists &&
        status.code() != Code::kInvalidArgument) {
      return status;
    }
    if (!status.ok()) {
      complete(submission, status);
      return {};
    }
  }
  complete(submission, {});
  return {};
}

Status RuntimeCore::add_set(std::vector<int32_t> ranks, Submission* submission) {
  HVD_ASSIGN_OR_RETURN(auto members, set_table_->add(std::move(ranks)));
  last_serial_ = members->serial;
  submission->registered = members->id;
  if (members->index >= 0) HVD_RETURN_IF_ERROR(open_set(members));
  return {};
}

Status RuntimeCore::remove_set(int32_t id, Submission* submission) {
  const auto members = set_table_->find(id);
  submission->registered = id;
  if (members == nullptr || id == 0) {
    complete(submission, not_found(cat("process set ", id, " does not exist")));
    return {};
  }
  set_table_->remove(id);
  ProcessSet* set = set_of(members->serial);
  if (set == nullptr) {
    complete(submission, {});
    return {};
  }
  set->removed = some_removed_ = true;
  set->removal = submission;
  if (set->ended)
    fail_rest(set);
  else if (set->coordinator)
    return send_last_plan(set);
  return {};
}

Status RuntimeCore::send_last_plan(ProcessSet* set) {
  HVD_RETURN_IF_ERROR(send_plan(set, set->coordinator->last_plan()));
  ++set->plans;
  set->coordinator->planned();
  end_set(set);
  return {};
}

// What is not planned yet never will be.
void RuntimeCore::end_set(ProcessSet* set) {
  if (std::exchange(set->ended, true)) return;
  // A set that nobody has removed ends with the job: the news of that may still be on its way, and
  // then fails this work too.
  if (over() || set->removed) fail_rest(set);
}

void RuntimeCore::fail_rest(ProcessSet* set) {
  set->after_join.clear();
  for (Submission* submission = newest_; submission != nullptr;) {
    Submission* older = submission->older;
    if (submission->accepted && !submission->planned && submission->set == set->members->serial) {
      const std::string& name = submission->name->text;
      complete(submission,
               over() ? refuse(submission->request.op, name)
                      : not_found(cat(operation_text(submission->request.op, name),
                                      " cannot run: process set ", set->members->id,
                                      " was removed before every member had submitted it")));
    }
    submission = older;
  }
}

bool RuntimeCore::drop_removed_sets() {
  if (!some_removed_) return false;
  some_removed_ = false;
  bool dropped = false;
  for (auto& set : sets_) {
    if (!set->removed) continue;
    if (!set->ended || !executor_.idle(*set->queue)) {
      some_removed_ = true;
      continue;
    }
    if (Status status = executor_.close_queue(set->queue); !status.ok()) {
      fail_with(status, -1);
      return true;
    }
    set->cache.each([this](CacheEntry& entry) {
      if (entry.name == nullptr) return;
      entry.name->cached = nullptr;
      names_->keep(entry.name, false);
    });
    complete(set->removal, {});
    set.reset();
    dropped = true;
  }
  std::erase(sets_, nullptr);
  return dropped;
}

void RuntimeCore::hear_what_was_early() {
  if (early_.empty()) return;
  std::vector<Early> early = std::exchange(early_, {});
  early_bytes_ = 0;
  for (Early& one : early) {
    if (one.set > last_serial_) {
      early_bytes_ += one.message.size();
      early_.push_back(std::move(one));
    } else {
      receive(one.from, one.message);
    }
  }
}

bool RuntimeCore::all_sets_ended() const {
  return std::all_of(sets_.begin(), sets_.end(), [](const auto& set) { return set->ended; });
}

}  // namespace hvd::runtime
