// The batches of each process set, in the order that all members have. Belongs to the thread that makes
// progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "base/status.h"
#include "ops/common/op_plugin.h"

namespace hvd::ops {

// A batch of the runtime and how to report its end.
struct QueueEntry {
  const hvd_batch* batch;
  Done done;
  void* argument;
};

// Set has `entries`, a std::deque of QueueEntry or of what derives from it.
template <typename Set>
class BatchQueue {
 public:
  Set* find(int32_t id) {
    const auto found = sets_.find(id);
    return found == sets_.end() ? nullptr : found->second.get();
  }
  void add(int32_t id, std::unique_ptr<Set> set) { sets_.emplace(id, std::move(set)); }
  // The answer of drop_set.
  int drop(int32_t id) {
    const auto found = sets_.find(id);
    if (found == sets_.end() || id == 0) return HVD_NOT_FOUND;
    if (!found->second->entries.empty()) return HVD_FAILED_PRECONDITION;
    sets_.erase(found);
    return HVD_OK;
  }
  void drop_all() { sets_.clear(); }

  template <typename Entry>
  void push(Set& set, Entry entry) {
    set.entries.push_back(std::move(entry));
    ++size_;
  }
  // Removes the first entry and reports its end; the callback may run the next batch.
  void finish(Set& set, const Status& status) {
    const auto entry = std::move(set.entries.front());
    set.entries.pop_front();
    --size_;
    entry.done(entry.argument, static_cast<int>(status.code()),
               status.ok() ? nullptr : status.message().c_str());
  }

  // No batch in any set.
  bool is_idle() const { return size_ == 0; }
  // Pairs of an id and a unique_ptr<Set>.
  auto begin() { return sets_.begin(); }
  auto end() { return sets_.end(); }

 private:
  std::map<int32_t, std::unique_ptr<Set>> sets_;
  size_t size_ = 0;
};

}  // namespace hvd::ops
