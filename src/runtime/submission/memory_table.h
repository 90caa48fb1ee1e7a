// The memory that submissions in flight read and write. Refuses a submission whose output overlaps any of
// it, or whose input overlaps an output. Addresses of the host and of devices are in one table: the
// drivers give devices addresses that the host does not use. TensorTable owns it, under its lock.
//
// A use stays after its submission, until memory in flight overlaps it. A step that uses the memory of the last
// one in the same order thus searches nothing.
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
  uint32_t tensor = 0;                // index among the submission's
  const Submission* owner = nullptr;  // the submission in flight; nullptr: none
  MemoryUse* next = nullptr;          // the one that followed the last time
};

class MemoryTable {
 public:
  // Adds the memory of a submission, which has a name. Returns the reason when some of it is in use: then
  // adds nothing. Empty: none. *is_in_flight: that of another submission is, which will end.
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

  IntervalSet intervals_;       // of uses_ that are not empty
  std::deque<MemoryUse> uses_;  // addresses stay
  std::vector<MemoryUse*> free_;
  std::vector<MemoryUse*> stale_;  // during a search
  MemoryUse first_;
  MemoryUse* last_ = &first_;  // entered last
  size_t in_flight_ = 0, most_in_flight_ = 0;
};

}  // namespace hvd::runtime
