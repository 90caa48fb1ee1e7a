// Handles an sshd that closes a connection before the key exchange because it has more unauthenticated connections than
// MaxStartups allows. A later try may succeed.
#pragma once

#include <chrono>
#include <string_view>

#include "base/status.h"
#include "net/asio.h"

namespace hvd::launcher {

inline constexpr std::string_view kCrowded =
    "its sshd, or that of its jump host, has more logins at once than its MaxStartups allows";

// Returns whether ssh's messages, separated by "; ", report only that sshd has closed a connection so early.
bool shows_hang_up(std::string_view messages);
// If the error's message reports an early close, appends the likely cause.
Status explain_hang_up(const Status& status);

// The waiting times between tries. Each time is twice the previous time, with a random part so that hosts differ.
class Retries {
 public:
  explicit Retries(std::chrono::milliseconds first) : next_(first) {}
  // Returns false after the last try, or if the coroutine was cancelled.
  net::Task<bool> wait();

 private:
  static constexpr int kMost = 5;

  std::chrono::milliseconds next_;
  int waits_ = 0;
};

}  // namespace hvd::launcher
