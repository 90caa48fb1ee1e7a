// A notification on one Asio loop: notify() wakes all waiting coroutines. One thread.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "net/asio.h"

namespace hvd::net {

class Notification {
 public:
  using Time = asio::steady_timer::time_point;

  explicit Notification(const asio::any_io_executor& executor) : timer_(executor, Time::max()) {}
  void notify() { timer_.cancel(); }
  // Returns true after a notify(), or false if the waiting coroutine was cancelled.
  Task<bool> wait() {
    co_await timer_.async_wait(use_tuple);
    const auto state = co_await asio::this_coro::cancellation_state;
    co_return state.cancelled() == asio::cancellation_type::none;
  }
  // Like wait(), but returns at `time` at the latest. Only for an object with one waiter, since all waiters share
  // one timer.
  Task<bool> wait_until(Time time) {
    timer_.expires_at(time);
    return wait();
  }

 private:
  asio::steady_timer timer_;
};

// A mutex for the coroutines of one loop. A turn ends when its object is destroyed, also if its coroutine is
// cancelled.
class Turns : public std::enable_shared_from_this<Turns> {
 public:
  class Turn {
   public:
    explicit Turn(std::shared_ptr<Turns> turns) : turns_(std::move(turns)) {}
    Turn(Turn&&) = default;
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (!turns_) return;
      turns_->is_taken_ = false;
      turns_->ended_.notify();
    }

   private:
    std::shared_ptr<Turns> turns_;
  };

  explicit Turns(const asio::any_io_executor& executor) : ended_(executor) {}

  // Returns nothing if the waiting coroutine was cancelled.
  Task<std::optional<Turn>> take() {
    const std::shared_ptr<Turns> self = shared_from_this();
    while (is_taken_) {
      const bool was_notified = co_await ended_.wait();
      if (!was_notified) co_return std::nullopt;
    }
    is_taken_ = true;
    co_return Turn(self);
  }

 private:
  Notification ended_;
  bool is_taken_ = false;
};

}  // namespace hvd::net
