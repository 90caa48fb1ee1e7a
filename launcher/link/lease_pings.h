// Renews an agent's lease by pings, and finds that the agent is silent. Owns the timer and the count of
// unanswered pings; never reads or writes the link. Lives in an AgentLink, on the launcher's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/result.h"
#include "net/asio.h"

namespace hvd::launcher {

class LeasePings {
 public:
  // `send` sends the ping of this number.
  LeasePings(const net::asio::any_io_executor& executor, std::function<void(uint64_t)> send)
      : timer_(executor), send_(std::move(send)) {}

  // Until stop; an error when the agent has not answered for a lease.
  net::Task<Status> run(double lease_seconds);
  // Something came from the agent.
  void on_received() { unanswered_ = 0; }
  // The next ping comes a whole interval from now.
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
