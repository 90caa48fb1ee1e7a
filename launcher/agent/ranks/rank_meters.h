// Knows what the ranks of this host have counted and used: reads the pages in which they count, and /proc, when the
// launcher asks and never else. Asks no rank. Ranks owns it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/metrics/metrics_page.h"
#include "launcher/agent/ranks/gpu_use.h"
#include "launcher/protocol/host_metrics.h"
#include "launcher/protocol/host_steps.h"

namespace hvd::launcher {

class RankMeters {
 public:
  // The numbers of the ranks. Without memory for their pages, only /proc is read.
  void prepare(const std::vector<int>& ranks);
  // The value of HOROVOD_METRICS_PAGE for a rank, by its index; empty: it has no page.
  std::string place_of(size_t index) const;
  // The rank has called hvd.init().
  void on_joined(int rank);
  // `pids`: by index the process of each rank; -1 when it does not run. Ranks that have ended keep their counts.
  HostMetrics read(const std::vector<pid_t>& pids, const GpuUse& gpus);
  // The next moment in which others wait for a rank that is late by this in each step, by its last steps; nothing without
  // steps.
  std::optional<Clock::time_point> late_moment(size_t index, std::chrono::microseconds late) const;
  // Writes it into the pages of all ranks, for StepLog.
  void show_longest_wait(uint32_t microseconds) const;
  // The last training steps of the ranks that run and count them. Reads their pages alone.
  std::vector<RankSteps> read_steps(const std::vector<pid_t>& pids) const;
  // The same about what they have announced.
  std::vector<RankAnnounced> read_announced(const std::vector<pid_t>& pids) const;

 private:
  std::optional<MetricsPages> pages_;
  std::vector<RankMetrics> ranks_;  // as of the last look
};

}  // namespace hvd::launcher
