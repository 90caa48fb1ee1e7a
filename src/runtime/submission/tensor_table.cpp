#include "runtime/submission/tensor_table.h"

#include <utility>

#include "base/text.h"

namespace hvd::runtime {

Status TensorTable::insert(uint32_t set, std::string_view name, bool shared,
                           Submission* submission) {
  MutexLock lock(mutex_);
  Name* known = find_next(set, name);
  if (known == nullptr) {
    auto entry = std::make_unique<Name>(set, std::string(name));
    count(entry.get(), submission);
    const Key key{set, entry->text};
    names_.emplace(key, std::move(entry));
    return {};
  }
  if (known->in_flight > known->refused && !shared) {
    return already_exists(cat("'", printable(name),
                              "' has the same name as another tensor that "
                              "is in flight; wait for the first, or give each its own name"));
  }
  count(known, submission);
  return {};
}

Status TensorTable::insert_memory(Submission* submission) {
  MutexLock lock(mutex_);
  bool is_in_flight = false;
  std::string refusal = memory_.insert(*submission, &is_in_flight);
  if (refusal.empty()) return {};
  return is_in_flight ? already_exists(std::move(refusal)) : invalid_argument(std::move(refusal));
}

void TensorTable::count(Name* name, Submission* submission) {
  submission->name = name;
  ++name->in_flight;
  std::string& refusal = submission->request.refusal;
  if (refusal.empty()) refusal = memory_.insert(*submission);
  if (!refusal.empty()) ++name->refused;
}

void TensorTable::remove(std::span<Submission* const> submissions) {
  MutexLock lock(mutex_);
  for (Submission* submission : submissions) {
    Name* name = submission->name;
    if (submission->has_left) continue;
    if (name == nullptr) {
      memory_.remove(*submission);
      continue;
    }
    if (submission->request.refusal.empty()) {
      memory_.remove(*submission);
    } else {
      --name->refused;
    }
    if (--name->in_flight == 0 && !name->kept) erase(*name);
  }
}

Name* TensorTable::find(uint32_t set, std::string_view name) {
  MutexLock lock(mutex_);
  const auto found = names_.find(Key{set, name});
  return found == names_.end() ? nullptr : found->second.get();
}

void TensorTable::keep(Name* name, bool kept) {
  MutexLock lock(mutex_);
  if (std::exchange(name->kept, kept) != kept) {
    if (kept) {
      order_.push_back(name);
      name->place = order_.size() - 1;
    } else {
      put_at(order_.back(), name->place);
      order_.pop_back();
    }
  }
  if (!kept && name->in_flight == 0) erase(*name);
}

void TensorTable::put_at(Name* name, size_t place) {
  order_[place] = name;
  name->place = place;
}

Name* TensorTable::find_next(uint32_t set, std::string_view name) {
  if (next_ >= order_.size()) next_ = 0;
  if (!order_.empty() && order_[next_]->set == set && order_[next_]->text == name) {
    return order_[next_++];
  }
  const auto found = names_.find(Key{set, name});
  if (found == names_.end()) return nullptr;
  Name* known = found->second.get();
  if (known->kept) {
    put_at(order_[next_], known->place);
    put_at(known, next_++);
  }
  return known;
}

}  // namespace hvd::runtime
