// The queues of batches, one for each process set, in an order that is equal on all members. Lives on the progress
// thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/text.h"
#include "ops/common/op_plugin.h"

namespace hvd::ops {

// Describes a process set to a backend. Immutable.
struct ProcessSetDescriptor {
  int32_t id = 0;
  std::vector<int32_t> members;  // ascending ranks of the job
  uint32_t incarnation = 0;      // number of earlier sets with this id and these members

  int32_t size() const { return static_cast<int32_t>(members.size()); }
  int32_t index_of(int32_t rank) const {
    return static_cast<int32_t>(std::find(members.begin(), members.end(), rank) - members.begin());
  }
  // Returns a name that is equal on all members, and unique among the sets of the job.
  std::string name(std::string_view prefix) const {
    std::string text = cat(prefix, "/", id, "/", incarnation);
    for (const int32_t member : members) text += cat(".", member);
    return text;
  }
};

// Counts the incarnations of sets, since a job may remove a set and add it again. All members get the same counts.
class Incarnations {
 public:
  ProcessSetDescriptor make(int32_t id, std::vector<int32_t> members) {
    const uint32_t incarnation = seen_[{id, members}]++;
    return {id, std::move(members), incarnation};
  }

 private:
  std::map<std::pair<int32_t, std::vector<int32_t>>, uint32_t> seen_;
};

// A batch of the runtime, and the callback that reports the end of the batch.
struct QueueEntry {
  const hvd_batch* batch;
  Done done;
  void* argument;
};

// The class Set has the member `entries`, a std::deque of QueueEntry or of a derived class.
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

  bool is_idle() const { return size_ == 0; }
  // Iterate over pairs of an id and a unique_ptr<Set>.
  auto begin() { return sets_.begin(); }
  auto end() { return sets_.end(); }

 private:
  std::map<int32_t, std::unique_ptr<Set>> sets_;
  size_t size_ = 0;
};

}  // namespace hvd::ops
