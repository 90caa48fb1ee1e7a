#include "launcher/link/lease_pings.h"

#include <chrono>

#include "base/clock.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

// Pings in a lease. The host is lost after this many unanswered pings in a row. The count does not
// depend on the clock: a launcher that was stopped itself does not blame the agent.
constexpr int kPingsInLease = 3;

}  // namespace

net::Task<Status> LeasePings::run(double lease_seconds) {
  const auto interval = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(lease_seconds / kPingsInLease));
  while (!is_stopped_) {
    timer_.expires_after(interval);
    const auto [error] = co_await timer_.async_wait(net::use_tuple);
    // Suspended: the whole interval again, also when this ping was just due.
    const bool is_held_back = std::exchange(is_held_back_, false);
    if (error || is_held_back) continue;
    if (unanswered_ >= kPingsInLease) {
      co_return deadline_exceeded(cat("the host gave no sign of life for ", lease_seconds, " s"));
    }
    ++unanswered_;
    send_(++sent_);
  }
  co_return Status();
}

void LeasePings::hold_back() {
  is_held_back_ = true;
  timer_.cancel();
}

void LeasePings::stop() {
  is_stopped_ = true;
  timer_.cancel();
}

}  // namespace hvd::launcher
