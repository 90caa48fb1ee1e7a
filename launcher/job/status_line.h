// Follows a job on a terminal from the start of its ranks to its end, in one line below their output: which ranks start,
// then how many run, and how fast. Asks the agents once a second, for as long as the terminal shows the line, and has no
// timer else. JobLaunch owns it and calls it. Lives on the launch's loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/inspect/job_metrics.h"
#include "launcher/job/init_waits.h"
#include "launcher/output/launch_progress.h"
#include "launcher/output/output.h"
#include "launcher/output/progress_rates.h"
#include "net/asio.h"

namespace hvd::launcher {

// "ranks started 4; importing 1 (rank 2 on b); in hvd.init 3; 12 s". `wait`: that for other ranks, which run, or
// nothing: the program may not use Horovod.
std::string start_line(size_t ranks, const std::optional<InitWaits::Wait>& wait,
                       const std::vector<std::string>& host_of, double seconds, size_t columns);

class StatusLine {
 public:
  struct State {
    JobProgress job;  // without rates
    uint64_t steps = 0, bytes = 0;
  };
  // Asks the agents.
  using Look = std::function<net::Task<State>()>;

  // `hosts`: by rank. The arguments outlive this object.
  StatusLine(net::asio::any_io_executor executor, const InitWaits& waits, JobOutput& output,
             std::vector<std::string> hosts, Look look);

  // The ranks have begun. The coroutine shares the object: its loop may outlive the launch.
  static net::Task<void> run(std::shared_ptr<StatusLine> self);
  void stop();
  // A rank has written something.
  void has_written();
  // The ranks have met in hvd.init().
  void has_met() { has_met_ = true; }
  // Another line is on the terminal.
  void suspend(bool is_suspended) { is_suspended_ = is_suspended; }
  // A wait has begun or has ended, or the launcher goes on after it was stopped.
  void changed() { timer_.cancel(); }

 private:
  bool is_starting(bool waits) const;
  net::Task<std::string> line();

  const InitWaits& waits_;
  JobOutput& output_;
  const std::vector<std::string> hosts_;
  const Look look_;
  ProgressRates rates_;
  Clock::time_point began_ = Clock::now();
  bool has_written_ = false, has_met_ = false;
  bool is_suspended_ = false;
  bool is_asleep_ = false;  // no timer runs: the line is not shown
  bool is_over_ = false;
  net::asio::steady_timer timer_;
};

}  // namespace hvd::launcher
