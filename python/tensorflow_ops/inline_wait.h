// Bounded inline wait: decides whether, and for how long, the thread of TensorFlow's pool that runs a
// node waits for the work itself. That saves two wake-ups of other threads.
#pragma once

#include <atomic>
#include <cstdint>

#include "completion.h"

namespace hvd::tensorflow {

// The bounded wait of a node, on any thread. The bound keeps ranks that reach nodes in different
// orders from a deadlock. After a wasted wait, more and more runs skip it.
class InlineWait {
 public:
  explicit InlineWait(bool is_last = false) : is_last_(is_last) {}
  InlineWait& operator=(const InlineWait& other) {
    is_last_ = other.is_last_;
    return *this;
  }

  // Returns whether the work was complete in time; it is then finished and freed.
  bool finishes(PendingOperation* work);

 private:
  bool is_last_;
  std::atomic<uint32_t> wasted_{0};  // times in a row
  std::atomic<uint32_t> skips_{0};   // runs to come that go without
};

}  // namespace hvd::tensorflow
