// Computes how long a waiting thread spins before it sleeps, and whether the helper thread works in
// parallel, from the cores that this rank has (affinity, cgroup quota, other ranks on the machine).
// hvd_init calls spin_budget once. Pure.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace hvd::runtime {

// Computes from the results of earlier yields how long a spinning thread keeps its core before it
// yields. The thread that drives the runtime core calls AdaptiveYield with the current time. Pure.
//
// If a waiter and its peer share a core, the waiter must yield at once, because the peer can only reply
// after a yield. If waiter and peer do not share a core, another thread may take the waiter's core for longer than
// the peer needs, for example an idle thread of TensorFlow's pools, which polls for work before it sleeps.
class AdaptiveYield {
 public:
  using Duration = std::chrono::microseconds;

  // `after_computing`: spin limit of a wait after a computation, at least kUsual.
  explicit AdaptiveYield(Duration after_computing) : long_(std::max(after_computing, kUsual)) {}
  // Begins a wait, which may consist of several spins.
  void begin() {
    is_new_ = true;
    answered_ = false;
  }
  // Records a poll without any work.
  void found_nothing(Clock::time_point now);
  // Records a poll with work, which ends a spin.
  void moved();
  bool is_over(Clock::time_point now) const { return now - since_ > limit(); }
  // Records a yield of the core.
  void yielded(Clock::time_point from, Clock::time_point until);
  // Returns the start of the current spin.
  Clock::time_point since() const { return since_; }
  Duration limit() const { return is_long_ ? long_ : limit_; }

  // The usual spin limit: afterwards, another thread most likely needs this core.
  static constexpr Duration kUsual{20};
  // The spin limit when the peer itself needs this core.
  static constexpr Duration kShort{1};
  // If the time between two waits is at least this long, the caller has computed in between.
  static constexpr Duration kComputation{200};
  // In a yield longer than kEmptyYield, another thread has run. If the yield took longer than
  // kAnswer, the other thread was not the peer, which replies and then waits.
  static constexpr Duration kEmptyYield{2};
  static constexpr Duration kAnswer{200};

 private:
  const Duration long_;
  Duration limit_ = kUsual;
  bool is_long_ = false;  // this wait spins for long_, regardless of yields
  bool is_new_ = false;   // this wait has not polled yet
  bool is_spinning_ = false;
  bool answered_ = false;  // apparently the last yield let the peer answer
  Clock::time_point since_{};
  Clock::time_point last_{};  // the last time of a spin
};

struct SpinBudget {
  std::chrono::microseconds waiter{0};  // longest spin of a user's thread in hvd_wait
  std::chrono::microseconds helper{
      0};  // longest spin of the helper thread, which takes the user's time
  // The time for which a spin keeps its core in a wait after a computation; see adaptive_yield.h.
  std::chrono::microseconds after_computing{0};
  bool yields = false;  // call sched_yield between two polls
  // True if no core is free for the helper thread, so that its work takes time from the user's threads.
  bool helper_shares_core = true;
};

// `cores` may be a fraction. `one_host`: the complete job is on this machine.
SpinBudget spin_budget(double cores, int local_ranks, bool one_host);

// Returns the time for which submissions may accumulate before the helper thread takes them; a waiting thread takes
// them at once. On one host the delay is free, because all ranks compute on this machine.
std::chrono::microseconds gathering_time(const SpinBudget& budget, bool one_host,
                                         std::chrono::microseconds window);

}  // namespace hvd::runtime
