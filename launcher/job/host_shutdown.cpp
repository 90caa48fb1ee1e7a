#include "launcher/job/host_shutdown.h"

#include <chrono>
#include <iterator>
#include <utility>

namespace hvd::launcher {
namespace {

// Seconds after the grace period in which an agent must confirm its end. Then the launcher closes the link.
constexpr double kBeyondGrace = 2;
// The time in which agents receive the launcher's confirmation that their ranks have ended, and close their links.
constexpr std::chrono::seconds kTimeToClose{5};

}  // namespace

HostShutdown::HostShutdown(net::asio::io_context& loop, HostTable& hosts, JobOutput& output,
                           double grace, std::function<void(HostRun&)> on_late)
    : loop_(loop),
      hosts_(hosts),
      output_(output),
      grace_(grace),
      on_late_(std::move(on_late)),
      timer_(loop) {}

void HostShutdown::end(HostRun& host) {
  order_end(host, grace_, 0);
  give_up_in_time();
}

void HostShutdown::end_all(double grace, int signal) {
  for (HostRun& host : hosts_.hosts()) order_end(host, grace, signal);
  give_up_in_time();
}

void HostShutdown::order_end(HostRun& host, double grace, int signal) {
  if (host.is_over()) return;
  host.to(HostState::kEnding, HostCause::kEnd, Deadline::after_seconds(grace + kBeyondGrace));
  // A host without a link has no ranks yet; its preparation fails.
  if (host.link() != nullptr) host.link()->send(End{grace, signal});
}

// Sets the timer to the next deadline of a host that is ending.
void HostShutdown::give_up_in_time() {
  Deadline next = Deadline::never();
  for (const HostRun& host : hosts_.hosts()) {
    if (host.state() != HostState::kEnding || host.link() == nullptr) continue;
    if (host.deadline().time() < next.time()) next = host.deadline();
  }
  timer_.expires_at(next.time());
  if (next.is_never()) return;
  timer_.async_wait([this](const net::error_code& error) {
    if (!error) net::asio::co_spawn(loop_, give_up_late_hosts(), net::asio::detached);
  });
}

// Abandons hosts that have not ended in time. Their agents end the ranks by themselves once the link is closed. If a
// stalled terminal has blocked the agents, each late host gets the same time again.
net::Task<void> HostShutdown::give_up_late_hosts() {
  const bool was_stalled = output_.is_stalled();
  if (was_stalled) co_await output_.drain();
  if (hosts_.is_over()) co_return;
  for (int number = 0; number < std::ssize(hosts_.hosts()); ++number) {
    HostRun& host = hosts_.host(number);
    if (host.state() != HostState::kEnding || host.link() == nullptr || !host.deadline().passed())
      continue;
    if (was_stalled) {
      host.give_up_at(Deadline::after_seconds(grace_ + kBeyondGrace));
      continue;
    }
    host.close();
    on_late_(host);
  }
  give_up_in_time();
}

// Waits until the agents have closed their links. An agent that does not know whether its last message has arrived
// would wait for a new connection.
net::Task<void> HostShutdown::close_links() {
  timer_.expires_after(kTimeToClose);
  timer_.async_wait([this](const net::error_code& error) {
    if (!error) drop_links();
  });
  for (const HostRun& host : hosts_.hosts()) {
    if (host.link() != nullptr) co_await host.link()->wait_for_end();
  }
  timer_.cancel();
  drop_links();
}

void HostShutdown::drop_links() {
  for (HostRun& host : hosts_.hosts()) host.close();
}

}  // namespace hvd::launcher
