// Does things later: each after a random time, those of one sender and receiver in their order.
// One thread of its own; any thread may post.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace hvd::test {

class Postman {
 public:
  Postman(unsigned seed, std::chrono::microseconds most) : random_(seed), most_(most) {
    thread_ = std::thread([this] { run(); });
  }
  // Does what is left at once.
  ~Postman() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Postman(const Postman&) = delete;

  void post(std::pair<int32_t, int32_t> way, std::function<void()> delivery) {
    std::lock_guard lock(mutex_);
    auto due =
        Clock::now() + std::chrono::microseconds(random_() % static_cast<unsigned>(most_.count()));
    due = std::max(due, last_[way]);
    last_[way] = due;
    letters_.emplace(due, std::move(delivery));
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_ || !letters_.empty()) {
      if (letters_.empty()) {
        changed_.wait(lock);
      } else if (!stopping_ && letters_.begin()->first > Clock::now()) {
        changed_.wait_until(lock, letters_.begin()->first);
      } else {
        const auto delivery = std::move(letters_.begin()->second);
        letters_.erase(letters_.begin());
        lock.unlock();
        delivery();
        lock.lock();
      }
    }
  }

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::mt19937 random_;
  const std::chrono::microseconds most_;
  std::multimap<Clock::time_point, std::function<void()>> letters_;
  std::map<std::pair<int32_t, int32_t>, Clock::time_point> last_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hvd::test
