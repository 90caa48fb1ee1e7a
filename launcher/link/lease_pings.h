// Renews an agent's lease by pings, and detects a silent agent. Owns the timer and the count of
// unanswered pings. Sends through a function of AgentLink, which owns it. Lives on the launcher's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/result.h"
#include "net/asio.h"

namespace hvd::launcher {

class LeasePings {
 public:
  // `send` sends the ping with the given number.
  LeasePings(const net::asio::any_io_executor& executor, std::function<void(uint64_t)> send)
      : timer_(executor), send_(std::move(send)) {}

  // Sends pings until stop(). Returns an error when the agent has not answered for a whole lease.
  net::Task<Status> run(double lease_seconds);
  // Bytes have arrived from the agent.
  void on_received() { unanswered_ = 0; }
  // Delays the next ping to a whole interval from now.
  void hold_back();
  void stop();

 private:
  net::asio::steady_timer timer_;
  const std::function<void(uint64_t)> send_;
  uint64_t sent_ = 0;
  int unanswered_ = 0;
  bool is_held_back_ = false;
  bool is_stopped_ = false;
};

}  // namespace hvd::launcher
