// The signals that the launcher gets while a job runs: SIGUSR1, SIGUSR2 and SIGWINCH go to all ranks,
// SIGTSTP suspends the job, and the rest asks for its end. Owns the set of signals; never decides how a
// job ends. Lives in a job's launch, on its loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "launcher/link/agent_link.h"
#include "net/asio.h"

namespace hvd::launcher {

class JobSignals {
 public:
  // `links`, empty before anything was started, outlive this. `on_end` hears of a signal that asks for
  // the end.
  JobSignals(net::asio::io_context& loop, const std::vector<std::unique_ptr<AgentLink>>& links,
             std::function<void(int)> on_end);

  void watch();
  // A signal that this process got, or the ranks of a host, to those of all others.
  void pass_on(int number, int from_host = -1);

 private:
  void wait();
  void on_signal(int number);
  net::Task<void> suspend();

  net::asio::io_context& loop_;
  const std::vector<std::unique_ptr<AgentLink>>& links_;
  const std::function<void(int)> on_end_;
  net::asio::signal_set signals_;
  bool suspending_ = false;
  std::map<int, Clock::time_point> passed_on_;  // when each signal was last
};

}  // namespace hvd::launcher
