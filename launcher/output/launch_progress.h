// Formats the progress of a job as one line for a terminal, from the start of its hosts to its end. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace hvd::launcher {

struct HostProgress {
  std::string host;
  std::string stage;   // the current stage: "connect"
  double seconds = 0;  // time since the stage began
  bool is_ready = false;
};

// Returns "hosts ready 2/4; c: connect 3 s, d: authenticate 1 s": the slowest host first, at most `columns` wide.
std::string progress_line(std::vector<HostProgress> hosts, size_t columns);

struct JobProgress {
  int64_t up = 0;    // ranks that run, are not stopped, and whose host responds
  int64_t size = 0;  // ranks of the job
  std::optional<double> steps_per_second{}, bytes_per_second{};
  struct Slowest {
    int rank = 0;
    std::string host{};
    double late_seconds = 0;
  };
  std::optional<Slowest> slowest{};
  double seconds = 0;  // time since the job began
};

// Returns "4/4 ranks · 12.4 steps/s · 1.1 GB/s · slowest rank 3 (b) +38 ms · 00:02:11", for example. Omits unknown
// parts, and parts that do not fit into `columns`. `is_utf8`: of the terminal. `has_color`: the slowest rank gets a
// color.
std::string job_line(const JobProgress& job, size_t columns, bool is_utf8, bool has_color = false);

// Returns "1.1 GB/s", for example.
std::string byte_rate(double bytes_per_second);
// Returns "12.4 steps/s", for example.
std::string step_rate(double steps_per_second);

// The rates of a job's progress, from its ranks' counts at several times. Pure.
class ProgressRates {
 public:
  struct Counts {
    uint64_t steps = 0;  // steps of the rank with the most steps
    uint64_t bytes = 0;  // bytes of all ranks
    int64_t ranks = 0;   // ranks with counts: ranks of an unresponsive host are missing
  };
  // Rates begin anew if counts fall, because the ranks were restarted, or if the number of ranks changes. Counts with
  // fewer ranks are ignored for the first 3 s. `time`: when the counts were read. A second call with the same time has
  // no effect.
  void add(Clock::time_point time, const Counts& counts);

  // Returns the mean over the last 10 s; nullopt if unknown, for example before the first step.
  std::optional<double> steps_per_second() const;
  std::optional<double> bytes_per_second() const;

 private:
  struct Look {
    Clock::time_point time;
    Counts counts;
  };
  std::optional<double> rate(uint64_t Counts::*count) const;

  std::deque<Look> looks_;
  std::optional<Clock::time_point> missing_since_;
};

}  // namespace hvd::launcher
