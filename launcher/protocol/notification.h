// A notification: notify() wakes all coroutines that wait. On one loop, one thread.
#pragma once

#include "net/asio.h"

namespace hvd::launcher {

class Notification {
 public:
  explicit Notification(const net::asio::any_io_executor& executor)
      : timer_(executor, net::asio::steady_timer::time_point::max()) {}
  void notify() { timer_.cancel(); }
  // Also returns when the waiter is cancelled.
  net::Task<void> wait() { co_await timer_.async_wait(net::use_tuple); }

 private:
  net::asio::steady_timer timer_;
};

}  // namespace hvd::launcher
