// The progress engine: selects the thread that drives the runtime core, and puts threads to sleep.
// A thread in wait() drives the core itself, so that a synchronous operation needs no other thread.
// The helper thread drives only while no thread waits and work is pending; otherwise it sleeps
// without wake-ups. See docs/thread-model.md.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "net/event_loop.h"

namespace hvd::runtime {

// Computes from the results of earlier yields how long a spinning thread keeps its core before it
// yields. The thread that drives the runtime core calls AdaptiveYield with the current time. Pure.
//
// If a waiter and its peer share a core, the waiter must yield at once, because the peer can only reply after a yield.
// If they do not share a core, the waiter spins first: another thread could take its core for longer than the peer
// needs, for example a thread of TensorFlow's pools, which polls for work before it sleeps.
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
  bool answered_ = false;  // the peer seems to have replied during the last yield
  Clock::time_point since_{};
  Clock::time_point last_{};  // the time of the last empty poll or yield
};

// Computes how long a waiting thread spins before it sleeps, and whether the helper thread works in
// parallel, from the cores that this rank has (affinity, cgroup quota, other ranks on the machine).
// hvd_init calls spin_budget once. Pure.
struct SpinBudget {
  std::chrono::microseconds waiter{0};  // longest spin of a user's thread in hvd_wait
  std::chrono::microseconds helper{
      0};  // longest spin of the helper thread, which takes CPU time from the user
  // The time for which a spin keeps its core in a wait after a computation; see AdaptiveYield.
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

// The object that Progress drives. Every function is called with the progress lock held unless its comment says
// otherwise.
class Drivable {
 public:
  virtual ~Drivable() = default;
  // Advances all pending work once; never waits. Returns true if any work made progress.
  // `flush`: do not wait for further submissions to share a batch.
  virtual bool step(bool flush) = 0;
  // Prepares for sleep. Returns true if every later arrival wakes a sleeping thread.
  virtual bool before_sleep() = 0;
  virtual void after_sleep() = 0;
  // Records that a thread begins to sleep.
  virtual void on_sleep() = 0;
  // Returns the time at which the batching window ends; max: no window is open.
  virtual Clock::time_point window_end() const = 0;
  // Returns the time at which step() has work without new input; max if never.
  virtual Clock::time_point alarm() const = 0;
  // Returns true if input exists that step() has not taken. Any thread.
  virtual bool has_input() const = 0;
  // Returns the number of incomplete submissions. Any thread.
  virtual uint64_t pending() const = 0;
  // Returns the number of submissions, which changes while the user is active. Any thread.
  virtual uint64_t activity() const = 0;
};

class Progress {
 public:
  Progress(Drivable* core, net::EventLoop* events, const SpinBudget& budget,
           std::chrono::microseconds window);
  // Stops the helper thread.
  ~Progress();

  // Waits until `done` or the deadline, and drives the core if no other waiting thread does.
  // Returns `done`. Any thread.
  bool wait(const std::atomic<bool>& done, Deadline deadline);

  // If no other thread holds the progress lock, calls body() with it and returns true. Otherwise
  // wakes the driver or the helper, which finds the input. Any thread.
  template <typename Body>
  bool try_run(Body&& body) {
    if (!progress_lock_.try_lock()) {
      notify_full();
      return false;
    }
    body();
    progress_lock_.unlock();
    return true;
  }
  // Returns whether a thread is in wait(). Any thread.
  bool has_waiter() const { return waiters_.load() > 0; }

  // Wakes the sleeping driver, if any, because of new input. Any thread.
  void notify();
  // Like notify(). If no thread waits, also ends the pause of the helper thread between two polls of the queue.
  void notify_full();
  // Wakes all waiting threads after a thread other than the driver has completed work.
  void notify_completed();

  // Returns the progress lock: only its holder may access the runtime core's objects.
  Mutex& progress_lock() HVD_RETURNS_MUTEX(progress_lock_) { return progress_lock_; }
  void stop_helper();

 private:
  void drive(const std::atomic<bool>& done, Deadline deadline);
  void wait_for_driver(const std::atomic<bool>& done, Deadline deadline);
  void give_core(Clock::time_point now) HVD_REQUIRES(progress_lock_);
  bool arm() HVD_REQUIRES(progress_lock_);
  void disarm() HVD_REQUIRES(progress_lock_);
  void wake_waiters();
  void help();
  void help_once();
  void give_way();
  void lull();

  Drivable* const core_;
  net::EventLoop* const events_;
  const SpinBudget budget_;
  const std::chrono::microseconds window_;
  const std::chrono::microseconds linger_;

  Mutex progress_lock_;
  // True between before_sleep() and after_sleep().
  bool armed_ HVD_GUARDED_BY(progress_lock_) = false;
  AdaptiveYield yield_ HVD_GUARDED_BY(progress_lock_);

  std::atomic<bool> sleeping_{false};       // a thread sleeps on events_, or is about to
  std::atomic<uint32_t> waiters_{0};        // threads in wait()
  std::atomic<bool> has_driver_{false};     // a waiting thread drives
  std::atomic<uint32_t> blocked_{0};        // waiting threads that block on changed_
  std::atomic<bool> helper_asleep_{false};  // sleeping on events_
  std::atomic<bool> helper_parked_{false};  // waits on helper_changed_ until all waiters leave
  std::atomic<bool> stopping_{false};
  Mutex changed_mutex_;              // protects against a change between a check and a sleep
  std::condition_variable changed_;  // signals `done`, or a missing driver
  std::condition_variable helper_changed_;

  // Only the helper thread uses the next three members.
  uint64_t seen_activity_ = 0;
  Clock::time_point last_active_{};
  bool flush_ = false;
  std::thread helper_;
};

}  // namespace hvd::runtime
