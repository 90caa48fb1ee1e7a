// Calls functions after random delays, in order for each pair of sender and receiver. Owns the
// thread that calls them; any thread may post.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace hvd::test {

class DelayedDelivery {
 public:
  DelayedDelivery(unsigned seed, std::chrono::microseconds most) : random_(seed), most_(most) {
    thread_ = std::thread([this] { run(); });
  }
  // Calls the remaining functions at once.
  ~DelayedDelivery() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  DelayedDelivery(const DelayedDelivery&) = delete;

  void post(std::pair<int32_t, int32_t> way, std::function<void()> delivery) {
    const MutexLock lock(mutex_);
    auto due =
        Clock::now() + std::chrono::microseconds(random_() % static_cast<unsigned>(most_.count()));
    due = std::max(due, last_[way]);
    last_[way] = due;
    deliveries_.emplace(due, std::move(delivery));
    changed_.notify_all();
  }

 private:
  void run() {
    MutexLock lock(mutex_);
    while (!stopping_ || !deliveries_.empty()) {
      if (deliveries_.empty()) {
        changed_.wait(lock.native());
      } else if (!stopping_ && deliveries_.begin()->first > Clock::now()) {
        changed_.wait_until(lock.native(), deliveries_.begin()->first);
      } else {
        const auto delivery = std::move(deliveries_.begin()->second);
        deliveries_.erase(deliveries_.begin());
        lock.unlock();
        delivery();
        lock.lock();
      }
    }
  }

  Mutex mutex_;
  std::condition_variable changed_;
  std::mt19937 random_ HVD_GUARDED_BY(mutex_);
  const std::chrono::microseconds most_;
  std::multimap<Clock::time_point, std::function<void()>> deliveries_ HVD_GUARDED_BY(mutex_);
  std::map<std::pair<int32_t, int32_t>, Clock::time_point> last_ HVD_GUARDED_BY(mutex_);
  bool stopping_ HVD_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace hvd::test
