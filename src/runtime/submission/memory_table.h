// The memory that submissions in flight read and write. Refuses a submission whose output overlaps
// memory in flight, or whose input overlaps an output. Host and device addresses share one table:
// drivers give devices addresses that the host does not use. TensorTable owns the table and guards it by a lock.
//
// A use stays in the table after its submission, until memory in flight overlaps it. A step that
// uses the memory of the previous step in the same order needs no search.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "runtime/submission/submission.h"

namespace hvd::runtime {

// Address intervals in the order of their first addresses, each with the use of its memory. Visits
// overlapping intervals in logarithmic time. MemoryTable owns the set. Not thread-safe.
struct MemoryUse;  // memory_table.h

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

// An input or an output.
struct MemoryUse {
  uintptr_t begin = 0, end = 0;  // equal: not in the table
  bool is_written = false;
  uint32_t tensor = 0;                // tensor's index in the submission
  const Submission* owner = nullptr;  // the submission in flight; may be nullptr
  MemoryUse* next = nullptr;          // the next use in the previous step
};

class MemoryTable {
 public:
  // Adds the memory of a submission with a name, and returns an empty text. If some of this memory is in use,
  // adds nothing and returns the reason. Sets *is_in_flight if another submission in flight uses the memory.
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

}  // namespace hvd::runtime
