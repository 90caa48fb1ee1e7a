// Reads the values of the ranks of this host (HostSample): from the shared pages with the ranks' counters, and from
// /proc. Reads only on a request of the launcher, and sends nothing to ranks. Ranks owns it.
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
#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

class RankMeters {
 public:
  // The numbers of the ranks. Without memory for their pages, only /proc is read.
  void prepare(const std::vector<int>& ranks);
  // The value of HOROVOD_METRICS_PAGE for a rank, by its index; empty: it has no page.
  std::string place_of(size_t index) const;
  // The rank has called hvd.init().
  void on_joined(int rank);
  // `pids`: by index the process of each rank; -1 when it does not run.
  HostSample read(SampleGroups groups, const std::vector<pid_t>& pids, const GpuUse& gpus);
  // The next moment in which others wait for a rank that is late by this in each step, by its last steps; nothing without
  // steps.
  std::optional<Clock::time_point> late_moment(size_t index, std::chrono::microseconds late) const;
  // Writes the longest wait of any rank into the pages of all ranks, for StepLog.
  void show_longest_wait(uint32_t microseconds) const;

 private:
  HostMetrics read_metrics(SampleGroups groups, const std::vector<pid_t>& pids, const GpuUse& gpus);

  std::optional<MetricsPages> pages_;
  std::vector<RankMetrics> ranks_;  // as of the last look
};

}  // namespace hvd::launcher
