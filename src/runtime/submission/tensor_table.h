// The names in flight on this rank, for each process set, and the memory of their tensors. A name in the
// response cache keeps its entry between uses, so that a repeated step allocates nothing. If a step uses the
// names in the order of the last step, the table finds each name without a look-up. Runtime owns the table.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "runtime/submission/memory_table.h"
#include "runtime/submission/submission.h"

namespace hvd::runtime {

struct CacheEntry;  // response_cache.h

struct Name {
  Name(uint32_t set, std::string text) : set(set), text(std::move(text)) {}
  const uint32_t set;  // serial number of the name's process set
  const std::string text;

  // Guarded by TensorTable::mutex_. An annotation cannot name the mutex: a Name has no reference to its table.
  uint32_t in_flight = 0;
  uint32_t refused = 0;  // refused submissions in flight, to be announced to other ranks
  bool kept = false;
  size_t place = 0;  // if `kept`: index of the name in the table's order

  // The members below are used by the progress thread.
  Submission* announced = nullptr;
  std::deque<Submission*> waiting;  // after `announced`; only for names that may be in flight twice
  CacheEntry* cached = nullptr;
  uint64_t step = 0;       // the training step of the name's last agreement
  uint32_t traced_in = 0;  // the timeline of `traced_as`
  uint32_t traced_as = 0;
};

class TensorTable {
 public:
  // Adds a submission with its name and memory. Returns kAlreadyExists if the name is in flight and `shared`
  // is false. If the memory is in use, sets the submission's refusal and adds it without memory.
  Status insert(uint32_t set, std::string_view name, bool shared, Submission* submission);
  // Adds the memory of a submission without a name: a send or receive. Fails if the memory is in use.
  Status insert_memory(Submission* submission);
  // Removes submissions that are complete or on a stream, and their names unless the names are kept.
  void remove(std::span<Submission* const> submissions);
  // Returns nullptr if the name is neither in flight nor kept.
  Name* find(uint32_t set, std::string_view name);
  // Sets whether the name stays in the table between uses. An unused name that is not kept is removed.
  void keep(Name* name, bool kept);

 private:
  struct Key {
    uint32_t set;
    std::string_view text;  // points into the value
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      return std::hash<std::string_view>()(key.text) + key.set * 0x9e3779b97f4a7c15U;
    }
  };
  Name* find_next(uint32_t set, std::string_view name) HVD_REQUIRES(mutex_);
  void put_at(Name* name, size_t place) HVD_REQUIRES(mutex_);
  void erase(const Name& name) HVD_REQUIRES(mutex_) { names_.erase(Key{name.set, name.text}); }

  void count(Name* name, Submission* submission) HVD_REQUIRES(mutex_);

  Mutex mutex_;  // also guards fields of Name: see the comments there
  MemoryTable memory_ HVD_GUARDED_BY(mutex_);
  std::unordered_map<Key, std::unique_ptr<Name>, Hash> names_ HVD_GUARDED_BY(mutex_);
  // The kept names in the order of their last use, and the position of the name that is expected next.
  std::vector<Name*> order_ HVD_GUARDED_BY(mutex_);
  size_t next_ HVD_GUARDED_BY(mutex_) = 0;
};

}  // namespace hvd::runtime
