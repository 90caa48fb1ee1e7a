// Prints, while ranks wait in hvd.init() for others, a sentence at intervals that names these and what their processes do. JobLaunch owns it and calls it.
// Lives on the launch's loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/observe/rules/init_waits.h"
#include "launcher/output/output.h"
#include "net/asio.h"

namespace hvd::launcher {

// "rank 3 on b has not called hvd.init() for 60 s: running (python3 train.py), 98 % of a core; ranks 0-2 wait for it".
// `activity`: of the first missing rank, or empty.
std::string wait_sentence(const InitWaits::Wait& wait, const std::vector<std::string>& host_of,
                          int64_t seconds, const std::string& activity);

// "ranks started 4; importing 1 (rank 2 on b); in hvd.init 3; 12 s". `wait`: that for other ranks, which run, or
// nothing: the program may not use Horovod.
std::string start_line(size_t ranks, const std::optional<InitWaits::Wait>& wait,
                       const std::vector<std::string>& host_of, double seconds, size_t columns);

class StartWatch {
 public:
  // Asks the agents what the processes of their ranks do: by host, as Inspected::text.
  using Ask = std::function<net::Task<std::vector<std::string>>()>;
  // `hosts`: by rank. The arguments outlive this object.
  StartWatch(net::asio::any_io_executor executor, const InitWaits& waits, JobOutput& output,
             std::vector<std::string> hosts, Ask ask);

  // The ranks have begun. The coroutine shares the object: its loop may outlive the launch.
  static net::Task<void> run(std::shared_ptr<StartWatch> self);
  void stop();
  // The line about the start; empty once the ranks are beyond it.
  std::string line(size_t columns) const;
  // A rank has written something, or the ranks have met in hvd.init().
  void has_begun() { has_begun_ = true; }
  // A wait has begun or has ended.
  void changed() { timer_.cancel(); }

 private:
  static net::Task<void> report(std::shared_ptr<StartWatch> self, InitWaits::Wait wait);

  const InitWaits& waits_;
  JobOutput& output_;
  const std::vector<std::string> hosts_;
  const Ask ask_;
  const bool is_terminal_;
  const Clock::time_point began_ = Clock::now();
  bool has_begun_ = false;
  bool is_over_ = false;
  net::asio::steady_timer timer_;
};

}  // namespace hvd::launcher
