// Follows a job on a terminal from the start of its ranks to its end, in one line below their output: which ranks start,
// then how many run, and how fast. Asks the agents once a second, for as long as the terminal shows the line, and looks
// at the terminal as often else. JobLaunch owns it and calls it. Lives on the launch's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "launcher/output/output.h"
#include "launcher/terminal/launch_progress.h"
#include "launcher/terminal/progress_rates.h"
#include "net/asio.h"

namespace hvd::launcher {

class StatusLine {
 public:
  struct State {
    JobProgress job{};  // without rates
    ProgressRates::Counts counts{};
    Clock::time_point read_at{};  // the counts
  };
  // Describes the start of the ranks; empty: the job has begun.
  using Start = std::function<std::string(size_t columns)>;
  // Asks the agents.
  using Look = std::function<net::Task<State>()>;

  // The arguments outlive this object.
  StatusLine(net::asio::any_io_executor executor, JobOutput& output, Start start, Look look);

  // The ranks have begun. The coroutine shares the object: its loop may outlive the launch.
  static net::Task<void> run(std::shared_ptr<StatusLine> self);
  void stop();
  // A rank has written something: the launcher may be in the foreground again.
  void has_written() {
    if (is_asleep_) timer_.cancel();
  }
  // Another line is on the terminal.
  void suspend(bool is_suspended) { is_suspended_ = is_suspended; }
  // The start has changed, or the launcher goes on after it was stopped.
  void changed() { timer_.cancel(); }

 private:
  net::Task<std::string> line();

  JobOutput& output_;
  const Start start_;
  const Look look_;
  ProgressRates rates_;
  bool is_suspended_ = false;
  bool is_asleep_ = false;  // the line is not shown
  bool is_over_ = false;
  net::asio::steady_timer timer_;
};

}  // namespace hvd::launcher
