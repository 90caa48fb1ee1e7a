#include "runtime/tensor_table.h"

#include "base/text.h"

namespace hvd::runtime {

Status TensorTable::insert(uint32_t set, std::string_view name, bool shared,
                           Submission* submission) {
  std::lock_guard lock(mutex_);
  const auto found = names_.find(Key{set, name});
  if (found == names_.end()) {
    auto entry = std::make_unique<Name>(set, std::string(name));
    entry->in_flight = 1;
    submission->name = entry.get();
    const Key key{set, entry->text};
    names_.emplace(key, std::move(entry));
    return {};
  }
  Name* entry = found->second.get();
  if (entry->in_flight > 0 && !shared) {
    return already_exists(cat("'", printable(name), "' has the same name as another tensor that "
                              "is in flight; wait for the first, or give each its own name"));
  }
  ++entry->in_flight;
  submission->name = entry;
  return {};
}

void TensorTable::remove(std::span<Submission* const> submissions) {
  std::lock_guard lock(mutex_);
  for (Submission* submission : submissions) {
    Name* name = submission->name;
    if (--name->in_flight == 0 && !name->kept) names_.erase(Key{name->set, name->text});
  }
}

Name* TensorTable::find(uint32_t set, std::string_view name) {
  std::lock_guard lock(mutex_);
  const auto found = names_.find(Key{set, name});
  return found == names_.end() ? nullptr : found->second.get();
}

void TensorTable::keep(Name* name, bool kept) {
  std::lock_guard lock(mutex_);
  name->kept = kept;
  if (!kept && name->in_flight == 0) names_.erase(Key{name->set, name->text});
}

}  // namespace hvd::runtime
