#include "runtime/core/process_set_registry.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::runtime {

Status ProcessSetRegistry::open_all() {
  HVD_RETURN_IF_ERROR(open(parts_.table->find(0)));
  all_ = sets_.front().get();
  return {};
}

Status ProcessSetRegistry::open(std::shared_ptr<const SetMembers> members) {
  auto set =
      std::make_unique<ProcessSetState>(std::move(members), parts_.links->rank(),
                                        parts_.links->machines(), *parts_.fusion, cache_capacity_);
  HVD_RETURN_IF_ERROR(parts_.executor->open_queue(set->members, &set->queue));
  sets_.push_back(std::move(set));
  return {};
}

void ProcessSetRegistry::complete(Submission* submission, const Status& status) {
  if (submission != nullptr) parts_.sink->complete(submission, status);
}

Status ProcessSetRegistry::add(const Request& request, std::string_view name,
                               Submission* submission) {
  for (auto& ranks : sets_of(request)) {
    Status status = add_set(std::move(ranks), name, submission);
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

Status ProcessSetRegistry::add_set(std::vector<int32_t> ranks, std::string_view name,
                                   Submission* submission) {
  HVD_ASSIGN_OR_RETURN(auto members, parts_.table->add(std::move(ranks), name));
  last_serial_ = members->serial;
  if (submission != nullptr) submission->registered = members->id;
  if (members->index >= 0) HVD_RETURN_IF_ERROR(open(members));
  return {};
}

ProcessSetState* ProcessSetRegistry::remove(int32_t id, Submission* submission) {
  const auto members = parts_.table->find(id);
  if (submission != nullptr) submission->registered = id;
  if (members == nullptr || id == 0) {
    complete(submission, not_found(cat("process set ", id, " does not exist")));
    return nullptr;
  }
  parts_.table->remove(id);
  ProcessSetState* set = find(members->serial);
  if (set == nullptr) {
    complete(submission, {});
    return nullptr;
  }
  set->removed = some_removed_ = true;
  set->removal = submission;
  return set;
}

Result<bool> ProcessSetRegistry::drop_removed() {
  if (!some_removed_) return false;
  some_removed_ = false;
  bool dropped = false;
  for (auto& set : sets_) {
    if (!set->removed) continue;
    if (!set->ended || !parts_.executor->idle(*set->queue)) {
      some_removed_ = true;
      continue;
    }
    HVD_RETURN_IF_ERROR(parts_.executor->close_queue(set->queue));
    set->cache.each([this](CacheEntry& entry) {
      if (entry.name == nullptr) return;
      entry.name->cached = nullptr;
      parts_.names->keep(entry.name, false);
    });
    complete(set->removal, {});
    set.reset();
    dropped = true;
  }
  std::erase(sets_, nullptr);
  return dropped;
}

ProcessSetState* ProcessSetRegistry::find_other(uint32_t serial) const {
  const auto found = std::lower_bound(
      sets_.begin(), sets_.end(), serial,
      [](const auto& set, uint32_t wanted) { return set->members->serial < wanted; });
  return found == sets_.end() || (*found)->members->serial != serial ? nullptr : found->get();
}

bool ProcessSetRegistry::all_ended() const {
  return std::all_of(sets_.begin(), sets_.end(), [](const auto& set) { return set->ended; });
}

bool ProcessSetRegistry::is_member(int32_t process_set, int32_t rank) const {
  const auto members = parts_.table->find(process_set);
  return members != nullptr && members->index_of(rank) >= 0;
}

Status ProcessSetRegistry::keep_early(uint32_t serial, int32_t from, ByteView message) {
  constexpr size_t kMostEarlyBytes = 64 << 20;
  early_bytes_ += message.size();
  if (early_bytes_ > kMostEarlyBytes) {
    return invalid_argument("too much for process sets that this rank does not have");
  }
  early_.push_back({serial, from, {message.begin(), message.end()}});
  return {};
}

void ProcessSetRegistry::keep_early(Early&& message) {
  early_bytes_ += message.message.size();
  early_.push_back(std::move(message));
}

std::vector<ProcessSetRegistry::Early> ProcessSetRegistry::take_early() {
  early_bytes_ = 0;
  return std::exchange(early_, {});
}

}  // namespace hvd::runtime
