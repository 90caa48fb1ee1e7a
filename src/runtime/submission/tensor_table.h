// The names in flight on this rank, for each process set, and the memory of their tensors. A name in the
// response cache keeps its entry between uses, so that a repeated step allocates nothing. If a step uses the
// names in the order of the last step, the table finds each name without a look-up. Runtime owns the table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "runtime/submission/submission.h"

namespace hvd::runtime {

struct MemoryUse;

struct MemoryUse;

// Address intervals in the order of their first addresses, each with the use of its memory.
// Visiting overlaps costs one comparison for each chunk of up to 64 intervals before the wanted
// end. MemoryTable owns the set. Not thread-safe.
class IntervalSet {
 public:
  struct Interval {
    uintptr_t begin = 0, end = 0;  // not empty
    MemoryUse* use = nullptr;
  };

  void insert(const Interval& interval);
  // Removes the interval with this begin and use. Returns false if the interval does not exist.
  bool erase(uintptr_t begin, const MemoryUse* use);
  // Calls visit(interval) for each overlap with [begin, end), until it returns false. `visit` must not change the set.
  template <typename Visit>
  void visit_overlaps(uintptr_t begin, uintptr_t end, Visit&& visit) const {
    for (size_t at = count_below(firsts_.data(), firsts_.size(), end); at > 0; --at) {
      const Chunk& chunk = *chunks_[at - 1];
      if (chunk.max_end <= begin) continue;
      for (size_t i = count_below(chunk.intervals.data(), chunk.count, end); i > 0; --i) {
        const Interval& one = chunk.intervals[i - 1];
        if (one.end > begin && !visit(one)) return;
      }
    }
  }
  bool empty() const { return chunks_.empty(); }

 private:
  static constexpr size_t kChunk = 64;
  struct Chunk {
    size_t count = 0;
    uintptr_t max_end = 0;
    std::array<Interval, kChunk> intervals;
    void find_max_end();
  };
  static uintptr_t begin_of(uintptr_t first) { return first; }
  static uintptr_t begin_of(const Interval& interval) { return interval.begin; }
  // Returns the number of elements that begin below `limit`, without branches, which would be unpredictable.
  template <typename Element>
  static size_t count_below(const Element* elements, size_t count, uintptr_t limit) {
    const Element* from = elements;
    while (count > 1) {
      const size_t half = count / 2;
      from += begin_of(from[half - 1]) < limit ? half : 0;
      count -= half;
    }
    const bool is_below = count == 1 && begin_of(*from) < limit;
    return static_cast<size_t>(from - elements) + (is_below ? 1 : 0);
  }
  void split(size_t chunk);
  void erase_from(size_t chunk, size_t index);

  std::vector<uintptr_t> firsts_;  // the first begin of each chunk
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::unique_ptr<Chunk> spare_;  // an empty chunk for reuse: refilling the set allocates nothing
};

// The memory of an input or an output.
struct MemoryUse {
  uintptr_t begin = 0, end = 0;  // equal: not in the table
  bool is_written = false;
  uint32_t tensor = 0;                // tensor's index in the submission
  const Submission* owner = nullptr;  // the submission in flight; may be nullptr
  MemoryUse* next = nullptr;          // the next use in the previous step
};

// The memory that submissions in flight read and write. Refuses a submission whose output overlaps
// memory in flight, or whose input overlaps an output. Host and device addresses share one table:
// drivers give devices addresses that the host does not use. TensorTable owns the table and guards it by a lock.
//
// A use stays in the table after its submission, until memory in flight overlaps it. A step that
// uses the memory of the previous step in the same order needs no search.
class MemoryTable {
 public:
  // Adds the memory of a submission, and returns an empty text. If some of this memory is in use, adds nothing and
  // returns the reason. Sets *is_in_flight if another submission in flight uses the memory.
  std::string insert(Submission& submission, bool* is_in_flight = nullptr);
  // Removes the memory of a submission that was added.
  void remove(Submission& submission);

 private:
  const MemoryUse* add(Submission& submission, uint32_t tensor, MemoryUse* refused);
  const MemoryUse* enter(const MemoryUse& wanted, MemoryUse** entered);
  MemoryUse* search(const MemoryUse& wanted, const MemoryUse** in_use);
  MemoryUse* take_free();
  void forget(MemoryUse* use);
  void forget_unused();

  IntervalSet intervals_;       // intervals of uses_ that are not empty
  std::deque<MemoryUse> uses_;  // stable addresses
  std::vector<MemoryUse*> free_;
  std::vector<MemoryUse*> stale_;  // used during a search
  MemoryUse first_;
  MemoryUse* last_ = &first_;  // the last entered use
  size_t in_flight_ = 0, most_in_flight_ = 0;
};

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
  // Adds a submission with its name and memory. Returns kAlreadyExists if an earlier submission of the name is in
  // flight and was not refused, and `shared` is false. If the memory is in use, sets the submission's refusal and adds
  // it without memory.
  Status insert(uint32_t set, std::string_view name, bool shared, Submission* submission);
  // Adds the memory of a submission without a name: a send, a receive or a call of a group. Fails if the memory is in
  // use.
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
