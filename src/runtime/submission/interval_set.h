// Address intervals in the order of their first addresses, each with the use of its memory. Visits
// overlapping intervals in logarithmic time. MemoryTable owns the set. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace hvd::runtime {

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

}  // namespace hvd::runtime
