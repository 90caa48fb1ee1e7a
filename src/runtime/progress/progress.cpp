#include "runtime/progress/progress.h"

#include <pthread.h>
#include <sched.h>

#include <utility>

#include "base/platform_cpu.h"

namespace hvd::runtime {
namespace {

using std::chrono::microseconds;

// Batching window if the helper shares a core: about as long as a backward pass, and short enough for programs that
// only poll.
constexpr std::chrono::milliseconds kSharedCoreWindow{10};

// For at least this time after the last submission or progress, the helper polls the queue every batching window, so
// that a submission needs no system call to wake it.
constexpr std::chrono::milliseconds kLinger{20};

}  // namespace

void AdaptiveYield::found_nothing(Clock::time_point now) {
  answered_ = false;
  if (std::exchange(is_new_, false)) {
    is_spinning_ = false;
    is_long_ = now - last_ > kComputation;
  }
  if (!std::exchange(is_spinning_, true)) since_ = now;
  last_ = now;
}

void AdaptiveYield::moved() {
  if (std::exchange(answered_, false)) limit_ = kShort;
  is_spinning_ = false;
}

void AdaptiveYield::yielded(Clock::time_point from, Clock::time_point until) {
  last_ = until;
  if (is_long_) return;
  const auto took = until - from;
  answered_ = took > kEmptyYield && took < kAnswer;
  if (!answered_) limit_ = kUsual;
}

SpinBudget spin_budget(double cores, int local_ranks, bool one_host) {
  SpinBudget budget;
  const double share = cores / std::max(local_ranks, 1);
  // A wake-up costs 25-50 us, so spinning a few times as long pays if the peer is about to answer. Ranks of one host
  // with equal work finish within a tenth of a step of each other, some milliseconds; a waiter yields meanwhile.
  // Between hosts the kernel also needs these cores.
  if (share >= 1) {
    budget.waiter = one_host ? microseconds(6000) : microseconds(200);
    // Spin for longer than a yield between steps of TensorFlow takes (35 to 60 us).
    if (one_host) budget.after_computing = microseconds(100);
    budget.helper = share >= 2 ? microseconds(20) : microseconds(0);
    budget.helper_shares_core = share < 2;
  } else if (cores >= 1) {
    // Peers need this core: poll briefly, and let them run.
    budget.waiter = microseconds(100);
    budget.yields = true;
  }
  // With less than one core, do not spin: a spin uses quota that the peers need to reply.
  return budget;
}

std::chrono::microseconds gathering_time(const SpinBudget& budget, bool one_host,
                                         std::chrono::microseconds window) {
  if (!budget.helper_shares_core || !one_host) return window;
  return std::max<std::chrono::microseconds>(window, kSharedCoreWindow);
}

Progress::Progress(Drivable* core, net::EventLoop* events, const SpinBudget& budget,
                   std::chrono::microseconds window)
    : core_(core),
      events_(events),
      budget_(budget),
      window_(std::max(window, std::chrono::microseconds(100))),
      linger_(std::max<std::chrono::microseconds>(kLinger, 10 * window_)),
      yield_(budget.after_computing) {
  helper_ = std::thread([this] { help(); });
}

Progress::~Progress() { stop_helper(); }

void Progress::stop_helper() {
  if (!helper_.joinable()) return;
  {
    const MutexLock lock(changed_mutex_);
    stopping_.store(true);
  }
  helper_changed_.notify_all();
  events_->notify();
  helper_.join();
}

bool Progress::wait(const std::atomic<bool>& done, Deadline deadline) {
  if (done.load(std::memory_order_acquire)) return true;
  waiters_.fetch_add(1);
  while (!done.load(std::memory_order_acquire)) {
    if (!has_driver_.exchange(true)) {
      drive(done, deadline);
      has_driver_.store(false);
      if (blocked_.load() > 0) wake_waiters();
    } else {
      wait_for_driver(done, deadline);
    }
    if (deadline.passed()) break;
  }
  if (waiters_.fetch_sub(1) == 1) {
    // Wake the helper to continue the pending work.
    if (helper_asleep_.load()) events_->notify();
    if (helper_parked_.load()) {
      const MutexLock lock(changed_mutex_);
      helper_changed_.notify_all();
    }
  }
  return done.load(std::memory_order_acquire);
}

void Progress::drive(const std::atomic<bool>& done, Deadline deadline) {
  MutexLock lock(progress_lock_);
  disarm();
  yield_.begin();
  while (!done.load(std::memory_order_acquire)) {
    if (core_->step(true)) {
      yield_.moved();
      if (blocked_.load() > 0) wake_waiters();
      continue;
    }
    if (done.load(std::memory_order_acquire)) return;
    const auto now = Clock::now();
    if (now >= deadline.time()) return;
    yield_.found_nothing(now);
    if (now - yield_.since() < budget_.waiter) {
      if (budget_.yields)
        ::sched_yield();
      else if (yield_.is_over(now))
        give_core(now);
      else
        cpu_pause();
      continue;
    }
    if (arm()) {
      const auto until = std::min({deadline.time(), core_->window_end(), core_->alarm()});
      lock.unlock();
      events_->wait(Deadline::at(until));
      lock.lock();
      disarm();
    }
    yield_.moved();
  }
}

void Progress::give_core(Clock::time_point now) {
  ::sched_yield();
  yield_.yielded(now, Clock::now());
}

void Progress::wait_for_driver(const std::atomic<bool>& done, Deadline deadline) {
  MutexLock lock(changed_mutex_);
  blocked_.fetch_add(1);
  // Check after the increment: either the driver sees that this thread is blocked, or this thread sees the driver's
  // change.
  if (!done.load() && has_driver_.load()) {
    if (deadline.is_never())
      changed_.wait(lock.native());
    else
      changed_.wait_until(lock.native(), deadline.time());
  }
  blocked_.fetch_sub(1);
}

void Progress::wake_waiters() {
  { const MutexLock lock(changed_mutex_); }
  changed_.notify_all();
}

bool Progress::arm() {
  if (!core_->before_sleep()) return false;
  armed_ = true;
  sleeping_.store(true);
  // Check after the store: either this thread sees the input, or the submitter sees `sleeping_`, and wakes this
  // thread.
  if (!core_->has_input()) {
    core_->on_sleep();
    return true;
  }
  disarm();
  return false;
}

void Progress::disarm() {
  if (!armed_) return;
  armed_ = false;
  sleeping_.store(false);
  core_->after_sleep();
  events_->dispatch();
}

void Progress::notify() {
  if (sleeping_.load() && sleeping_.exchange(false)) events_->notify();
}

void Progress::notify_full() {
  notify();
  if (waiters_.load() == 0) helper_changed_.notify_all();
}

void Progress::notify_completed() {
  events_->notify();
  wake_waiters();
}

void Progress::help() {
  ::pthread_setname_np(::pthread_self(), "hvd-progress");
  last_active_ = Clock::now();
  while (!stopping_.load()) help_once();
}

void Progress::help_once() {
  if (waiters_.load() > 0) {
    give_way();
    return;
  }
  MutexLock lock(progress_lock_);
  if (waiters_.load() > 0) return;
  disarm();
  const bool moved = core_->step(std::exchange(flush_, false));
  if (moved && blocked_.load() > 0) wake_waiters();
  const auto now = Clock::now();
  const uint64_t activity = core_->activity();
  if (moved || activity != seen_activity_) last_active_ = now;
  seen_activity_ = activity;
  if (moved) return;

  const Clock::time_point window_end = core_->window_end();
  if (window_end <= now) {
    flush_ = true;
    return;
  }
  const bool is_pending = core_->pending() > 0;
  if (is_pending && now - last_active_ < budget_.helper) return;
  if (!is_pending && now - last_active_ < linger_) {
    lock.unlock();
    lull();
    return;
  }
  const auto until = is_pending ? std::min(window_end, core_->alarm()) : core_->alarm();
  if (!arm()) return;
  helper_asleep_.store(true);
  lock.unlock();
  if (!stopping_.load()) events_->wait(Deadline::at(until));
  helper_asleep_.store(false);
  // The next thread that takes the progress lock to drive the core calls disarm().
}

void Progress::lull() {
  MutexLock lock(changed_mutex_);
  if (!stopping_.load()) helper_changed_.wait_until(lock.native(), Clock::now() + window_);
  flush_ = true;
}

void Progress::give_way() {
  const uint64_t activity = core_->activity();
  const auto now = Clock::now();
  if (activity != seen_activity_) last_active_ = now;
  seen_activity_ = activity;
  if (now - last_active_ < linger_) {
    lull();
    return;
  }
  MutexLock lock(changed_mutex_);
  helper_parked_.store(true);
  helper_changed_.wait(lock.native(), [this] { return stopping_.load() || waiters_.load() == 0; });
  helper_parked_.store(false);
}

}  // namespace hvd::runtime
