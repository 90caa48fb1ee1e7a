// Intervals of addresses in the order of their begin, with an owner for each. Finds an interval that
// overlaps another one in logarithmic time; a few hundred intervals cost some ten nanoseconds each.
// MemoryTable owns it. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace hvd::runtime {

struct Submission;

class IntervalSet {
 public:
  struct Interval {
    uintptr_t begin = 0, end = 0;  // not empty
    const Submission* owner = nullptr;
    uint32_t tensor = 0;  // index among the owner's tensors
  };

  void insert(const Interval& interval);
  // Removes one interval of the owner that begins there. Returns false when there is none.
  bool erase(uintptr_t begin, const Submission* owner);
  // An interval that overlaps [begin, end), or nullptr. Valid until the next change.
  const Interval* find_overlap(uintptr_t begin, uintptr_t end) const;
  bool empty() const { return chunks_.empty(); }

 private:
  static constexpr size_t kChunk = 64;
  struct Chunk {
    size_t count = 0;
    uintptr_t max_end = 0;
    std::array<Interval, kChunk> intervals;
    void find_max_end();
  };
  void split(size_t chunk);
  void erase_from(size_t chunk, size_t index);

  std::vector<uintptr_t> firsts_;  // the first begin of each chunk
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::unique_ptr<Chunk>
      spare_;  // the last empty one: a set that empties and fills allocates nothing
};

}  // namespace hvd::runtime
