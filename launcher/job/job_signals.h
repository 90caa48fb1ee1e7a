// Handles the signals of the launcher while a job runs: forwards SIGUSR1, SIGUSR2 and SIGWINCH to all ranks, suspends
// the job on SIGTSTP and SIGTTOU, and reports SIGINT, SIGTERM and SIGHUP through `on_end`, which ends the job. Owns the
// signal set. JobLaunch owns this object. Lives on the launch's loop.
#pragma once

#include <functional>
#include <map>

#include "base/clock.h"
#include "launcher/hosts/host_table.h"
#include "net/asio.h"

namespace hvd::launcher {

class JobSignals {
 public:
  // `hosts` must outlive this object. `on_end` receives the number of a signal that ends the job.
  JobSignals(net::asio::io_context& loop, HostTable& hosts, std::function<void(int)> on_end);

  void watch();
  // Sets a function that is called with true before the launcher stops, and with false when it continues.
  void around_stop(std::function<void(bool stops)> callback) { around_stop_ = std::move(callback); }
  // Forwards a signal to the ranks of all hosts except `from_host`: its ranks have already received the signal.
  void pass_on(int number, int from_host = -1);

 private:
  void wait();
  void on_signal(int number);
  net::Task<void> suspend();

  net::asio::io_context& loop_;
  HostTable& hosts_;
  const std::function<void(int)> on_end_;
  std::function<void(bool stops)> around_stop_;
  net::asio::signal_set signals_;
  bool suspending_ = false;
  std::map<int, Clock::time_point> passed_on_;  // when each signal was last forwarded
};

}  // namespace hvd::launcher
