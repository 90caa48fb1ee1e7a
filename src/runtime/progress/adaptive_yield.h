// Decides how long a spinning thread keeps its core before it yields, from the outcome of earlier
// yields. The thread that drives the runtime core calls it with the current time. Pure.
//
// If a waiter and its peer share a core, the peer can answer only after a yield, so the waiter must yield
// at once. If they do not, another thread may get the core and keep it for longer than the peer needs, such
// as an idle thread of TensorFlow's pools, which looks for work before it sleeps.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace hvd::runtime {

class AdaptiveYield {
 public:
  using Duration = std::chrono::microseconds;

  // `after_computing`: limit of the spins of a wait after a computation; not below that of other
  // waits.
  explicit AdaptiveYield(Duration after_computing) : long_(std::max(after_computing, kUsual)) {}
  // A wait begins, of as many spins as it takes.
  void begin() {
    is_new_ = true;
    answered_ = false;
  }
  // A look has found nothing to do.
  void found_nothing(Clock::time_point now);
  // A look has found something, which ends a spin.
  void moved();
  bool is_over(Clock::time_point now) const { return now - since_ > limit(); }
  // The core was given away meanwhile.
  void yielded(Clock::time_point from, Clock::time_point until);
  // Start of the current spin.
  Clock::time_point since() const { return since_; }
  Duration limit() const { return is_long_ ? long_ : limit_; }

  // The usual spin limit: after it, another thread most likely needs this core.
  static constexpr Duration kUsual{20};
  // The spin limit when the peer itself needs this core.
  static constexpr Duration kShort{1};
  // The least time between two waits that counts as a computation.
  static constexpr Duration kComputation{200};
  // After a yield of more than kEmptyYield another thread has run. After one of more than kAnswer it
  // was not the peer, because a peer answers and then waits itself.
  static constexpr Duration kEmptyYield{2};
  static constexpr Duration kAnswer{200};

 private:
  const Duration long_;
  Duration limit_ = kUsual;
  bool is_long_ = false;  // this wait spins for long_, whatever yields show
  bool is_new_ = false;   // nothing was looked for in this wait
  bool is_spinning_ = false;
  bool answered_ = false;  // by the last yield, it seems
  Clock::time_point since_{};
  Clock::time_point last_{};  // when a spin was last on
};

}  // namespace hvd::runtime
