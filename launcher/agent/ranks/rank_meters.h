// Reads the metrics of this host's ranks (HostSample): from the shared pages with the ranks' counters, and from /proc.
// Reads only on request of the launcher. Class Ranks owns this object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/metrics/metrics.h"
#include "launcher/agent/ranks/gpu_use.h"
#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

class RankMeters {
 public:
  // `ranks`: the numbers of the ranks. If their pages cannot be created, only /proc is read.
  void prepare(const std::vector<int>& ranks);
  // Returns the value of HOROVOD_METRICS_PAGE for a rank, by its index; empty: the rank has no page.
  std::string place_of(size_t index) const;
  // Call when the rank has called hvd.init().
  void on_joined(int rank);
  // `pids`: the process of each rank, by index; -1 if the rank does not run.
  HostSample read(SampleGroups groups, const std::vector<pid_t>& pids, const GpuUse& gpus);
  // Returns the time at which other ranks will next wait for this rank, predicted from its last steps, if it is late by
  // `late` in each step; nullopt without steps.
  std::optional<Clock::time_point> late_moment(size_t index, std::chrono::microseconds late) const;
  // Writes the longest wait of all ranks into each rank's page, for StepLog.
  void show_longest_wait(uint32_t microseconds) const;

 private:
  HostMetrics read_metrics(SampleGroups groups, const std::vector<pid_t>& pids, const GpuUse& gpus);

  std::optional<MetricsPages> pages_;
  std::vector<RankMetrics> ranks_;  // values of the last read()
};

}  // namespace hvd::launcher
