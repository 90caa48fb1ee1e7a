// A notification on one Asio loop: notify() wakes all waiting coroutines. Objects that receive
// events in I/O handlers own a Notification. One thread.
#pragma once

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
  // Like wait(), but returns at `time` at the latest. For an object with one waiter.
  Task<bool> wait_until(Time time) {
    timer_.expires_at(time);
    return wait();
  }

 private:
  asio::steady_timer timer_;
};

}  // namespace hvd::net
