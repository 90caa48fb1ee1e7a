#include "launcher/job/job_signals.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "base/process/signals.h"
#include "launcher/protocol/outside_signals.h"

namespace hvd::launcher {
namespace {

constexpr int kForwarded[] = {SIGUSR1, SIGUSR2, SIGWINCH};
// The time limit for the agents' answers before the launcher suspends itself.
constexpr std::chrono::seconds kTimeToSuspend{1};

// Returns whether this process is in the foreground of its terminal. Even then, the SIGTTOU of an earlier write may
// arrive.
bool is_in_foreground() {
  const pid_t own = ::getpgrp();
  return ::tcgetpgrp(STDOUT_FILENO) == own || ::tcgetpgrp(STDERR_FILENO) == own;
}

}  // namespace

JobSignals::JobSignals(net::asio::io_context& loop, HostTable& hosts,
                       std::function<void(int)> on_end)
    : loop_(loop), hosts_(hosts), on_end_(std::move(on_end)), signals_(loop) {}

void JobSignals::watch() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGTTOU}) {
    // Continue to ignore a signal that the caller ignores on purpose, as nohup does with SIGHUP. Always handle SIGINT:
    // shells ignore it for every background job.
    if (number != SIGINT && number != SIGTERM && is_ignored(number)) continue;
    signals_.add(number);
  }
  for (const int number : kForwarded) signals_.add(number);
  wait();
}

void JobSignals::wait() {
  signals_.async_wait([this](const net::error_code& error, int number) {
    if (error) return;
    on_signal(number);
    wait();
  });
}

void JobSignals::on_signal(int number) {
  if (std::find(std::begin(kForwarded), std::end(kForwarded), number) != std::end(kForwarded)) {
    return pass_on(number);
  }
  // A job in the background gets SIGTTOU when it writes to a terminal with `stty tostop`.
  if (number == SIGTTOU && is_in_foreground()) return;
  if (number != SIGTSTP && number != SIGTTOU) return on_end_(number);
  if (!std::exchange(suspending_, true)) {
    net::asio::co_spawn(loop_, suspend(), net::asio::detached);
  }
}

void JobSignals::pass_on(int number, int from_host) {
  const auto now = Clock::now();
  const auto last = passed_on_.find(number);
  // A scheduler signals all processes of a job at about the same time: forward only the first of these signals.
  // Forward every SIGWINCH: each may announce another size.
  if (number != SIGWINCH && last != passed_on_.end() && now - last->second < kSameSignalFor) return;
  passed_on_[number] = now;
  for (const HostRun& host : hosts_.hosts()) {
    if (host.link() != nullptr && host.number() != from_host) host.link()->send(Signal{number});
  }
}

// Pauses the agents' leases, and stops the ranks and this process until SIGCONT continues it.
net::Task<void> JobSignals::suspend() {
  struct Suspensions {
    size_t left;
    net::asio::steady_timer done;
  };
  const auto suspensions =
      std::make_shared<Suspensions>(Suspensions{0, net::asio::steady_timer(loop_, kTimeToSuspend)});
  for (const HostRun& host : hosts_.hosts()) {
    if (host.link() == nullptr) continue;
    ++suspensions->left;
    host.link()->send(Signal{SIGTSTP});
    net::asio::co_spawn(loop_, host.link()->suspend(), [suspensions](std::exception_ptr, Status) {
      if (--suspensions->left == 0) suspensions->done.cancel();
    });
  }
  if (suspensions->left > 0) co_await suspensions->done.async_wait(net::use_tuple);
  if (around_stop_) around_stop_(true);
  ::raise(SIGSTOP);
  if (around_stop_) around_stop_(false);
  for (const HostRun& host : hosts_.hosts()) {
    if (host.link() != nullptr) host.link()->send(Signal{SIGCONT});
  }
  // The links' next pings end the suspension.
  suspending_ = false;
}

}  // namespace hvd::launcher
