// The queues of batches, one for each process set, in an order that is equal on all members. Backend and
// CpuBackend own a BatchQueue. Lives on the progress thread.
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

// A batch of the runtime, and the callback that reports its end.
struct QueueEntry {
  const hvd_batch* batch;
  Done done;
  void* argument;
};

// Set must have `entries`, a std::deque of QueueEntry or of a derived class.
template <typename Set>
class BatchQueue {
 public:
  Set* find(int32_t id) {
    const auto found = sets_.find(id);
    return found == sets_.end() ? nullptr : found->second.get();
  }
  void add(int32_t id, std::unique_ptr<Set> set) { sets_.emplace(id, std::move(set)); }
  // Drops an idle set. Returns the result of hvd_op_v1.drop_set.
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
  // Removes the first entry and reports its end. The callback may submit the next batch.
  // `in_use`: 0, or HVD_TENSORS_IN_USE.
  void finish(Set& set, const Status& status, int in_use = 0) {
    const auto entry = std::move(set.entries.front());
    set.entries.pop_front();
    --size_;
    entry.done(entry.argument, static_cast<int>(status.code()) | in_use,
               status.ok() ? nullptr : status.message().c_str());
  }

  // Returns true if no set has a batch.
  bool is_idle() const { return size_ == 0; }
  // Iterate over pairs of an id and a unique_ptr<Set>.
  auto begin() { return sets_.begin(); }
  auto end() { return sets_.end(); }

 private:
  std::map<int32_t, std::unique_ptr<Set>> sets_;
  size_t size_ = 0;
};

}  // namespace hvd::ops
