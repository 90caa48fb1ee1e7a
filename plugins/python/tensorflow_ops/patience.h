// Whether the thread of TensorFlow's pool that runs a node drives the work itself for a while, which
// spares two wake-ups of other threads, and for how long.
#pragma once

#include <atomic>
#include <cstdint>

#include "completion.h"

namespace hvd::tensorflow {

// Of a node. Any thread. A thread is never kept longer than a moment, so that ranks which meet
// nodes in other orders meet all the same; where that was in vain, more and more runs go without.
class Patience {
 public:
  explicit Patience(bool is_last = false) : is_last_(is_last) {}
  Patience& operator=(const Patience& other) {
    is_last_ = other.is_last_;
    return *this;
  }

  // Whether the work was complete in time, and is finished and gone.
  bool finishes(Work* work);

 private:
  bool is_last_;
  std::atomic<uint32_t> in_vain_{0};  // times in a row
  std::atomic<uint32_t> skips_{0};    // runs to come that go without
};

}  // namespace hvd::tensorflow
