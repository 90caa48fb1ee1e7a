// A condition on one loop: the next notify() wakes all coroutines that wait. For objects that call
// back from I/O handlers. One thread.
#pragma once

#include "net/asio.h"

namespace hvd::launcher {

class Condition {
 public:
  using Time = net::asio::steady_timer::time_point;

  explicit Condition(const net::asio::any_io_executor& executor) : timer_(executor) {
    timer_.expires_at(Time::max());
  }
  void notify() { timer_.cancel(); }
  // Returns after a notify(), or false when the waiting coroutine was cancelled.
  net::Task<bool> wait() {
    co_await timer_.async_wait(net::use_tuple);
    const auto state = co_await net::asio::this_coro::cancellation_state;
    co_return state.cancelled() == net::asio::cancellation_type::none;
  }
  // Like wait(), but returns at `time` at the latest. For an object with one waiter.
  net::Task<bool> wait_until(Time time) {
    timer_.expires_at(time);
    return wait();
  }

 private:
  net::asio::steady_timer timer_;
};

}  // namespace hvd::launcher
