// The memory that submissions in flight read and write. Refuses a submission whose output overlaps
// memory in flight, or whose input overlaps an output. Host and device addresses share one table:
// drivers give devices addresses that the host does not use. TensorTable owns the table and guards it by a lock.
//
// A use stays in the table after its submission, until memory in flight overlaps it. A step that
// uses the memory of the previous step in the same order needs no search.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "runtime/submission/interval_set.h"
#include "runtime/submission/submission.h"

namespace hvd::runtime {

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
