// The progress engine: selects the thread that drives the runtime core, and puts threads to sleep.
// A thread in wait() drives the core itself, so that a synchronous operation needs no other thread.
// The helper thread drives only while no thread waits and work is pending; otherwise it sleeps
// without wake-ups. See docs/thread-model.md.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "net/event_loop.h"
#include "runtime/progress/spin_budget.h"

namespace hvd::runtime {

// The driven object. Every function is called with the progress lock held unless its comment says
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

  // Drives until `done` or the deadline. Any thread.
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
  // Like notify(), and ends the batching window at once.
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
