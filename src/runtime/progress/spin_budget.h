// Computes how long a waiting thread spins before it sleeps, and whether the helper thread works in
// parallel, from the cores that this rank has (affinity, cgroup quota, other ranks on the machine).
// hvd_init calls spin_budget once. Pure.
#pragma once

#include <chrono>

namespace hvd::runtime {

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
