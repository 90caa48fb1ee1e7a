// The memory that submissions in flight read and write. Refuses a submission whose output overlaps any of
// it, or whose input overlaps an output. Addresses of the host and of devices are in one table: the
// drivers give devices addresses that the host does not use. TensorTable owns it, under its lock.
#pragma once

#include <span>
#include <string>

#include "runtime/submission/interval_set.h"
#include "runtime/submission/submission.h"

namespace hvd::runtime {

class MemoryTable {
 public:
  // Adds the memory of a submission, which has a name. Returns the reason when some of it is in use: then
  // adds nothing. Empty: none.
  std::string insert(const Submission& submission);
  // Removes the memory of a submission that was added.
  void remove(const Submission& submission);

 private:
  std::string add(const Submission& submission, uint32_t tensor);

  IntervalSet written_;  // no two of them overlap, and none overlaps one of read_
  IntervalSet read_;     // and not written
};

}  // namespace hvd::runtime
