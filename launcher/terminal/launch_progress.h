// Formats the progress of a job as one line for a terminal, from the start of its hosts to its end. HostStartup,
// StatusLine and `horovodrun top` call it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hvd::launcher {

struct HostProgress {
  std::string host;
  std::string stage;   // the current stage: "connect"
  double seconds = 0;  // since the stage began
  bool is_ready = false;
};

// "hosts ready 2/4; c: connect 3 s, d: authenticate 1 s": the slowest first, at most `columns` wide.
std::string progress_line(std::vector<HostProgress> hosts, size_t columns);

struct JobProgress {
  int64_t up = 0;    // ranks that run, are not stopped, and whose host answers
  int64_t size = 0;  // ranks of the job
  std::optional<double> steps_per_second{}, bytes_per_second{};
  struct Slowest {
    int rank = 0;
    std::string host{};
    double late_seconds = 0;
  };
  std::optional<Slowest> slowest{};
  double seconds = 0;  // since the job began
};

// "4/4 ranks · 12.4 steps/s · 1.1 GB/s · slowest rank 3 (b) +38 ms · 00:02:11", without the parts that are not known,
// and without those that `columns` has no room for. `is_utf8`: of the terminal. `has_color`: the slowest rank has one.
std::string job_line(const JobProgress& job, size_t columns, bool is_utf8, bool has_color = false);

// "1.1 GB/s"
std::string byte_rate(double bytes_per_second);
// "12.4 steps/s"
std::string step_rate(double steps_per_second);

}  // namespace hvd::launcher
