// The answer of an agent to Inspect with InspectDetail::kMetrics: the sum of its ranks' counters, and what each rank and
// its processes have used. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/metrics/metrics.h"
#include "base/result.h"

namespace hvd::launcher {

enum class RankActivity : uint8_t { kEnded = 0, kRuns = 1, kStopped = 2 };

// The use of a rank's process and those below it. Counts never fall, also when a process ends.
struct ProcessUsage {
  uint64_t cpu_microseconds = 0;
  uint64_t run_delay_microseconds = 0;  // runnable, but without a processor
  uint64_t minor_faults = 0, major_faults = 0;
  uint64_t read_bytes = 0, written_bytes = 0;  // from and to storage
  uint64_t resident_bytes = 0;
  uint64_t threads = 0;
  uint64_t processes = 0;
  uint64_t gpu_bytes = 0;  // memory on GPUs, as nvidia-smi or rocm-smi shows it
  static auto fields(auto& m) {
    return std::tie(m.cpu_microseconds, m.run_delay_microseconds, m.minor_faults, m.major_faults,
                    m.read_bytes, m.written_bytes, m.resident_bytes, m.threads, m.processes,
                    m.gpu_bytes);
  }
};

// The counts that a rank has made itself.
struct RankCounts {
  uint64_t steps = 0;
  uint64_t operations = 0, failed_operations = 0;
  uint64_t bytes = 0;
  uint64_t waited_microseconds = 0;  // for other ranks to agree
  uint64_t pending = 0;
  static auto fields(auto& m) {
    return std::tie(m.steps, m.operations, m.failed_operations, m.bytes, m.waited_microseconds,
                    m.pending);
  }
};
RankCounts counts_of(const Metrics& metrics);

struct RankMetrics {
  int32_t rank = 0;  // number of its process in the plan
  RankActivity activity = RankActivity::kEnded;
  uint8_t has_joined = 0;    // it has called hvd.init()
  uint8_t has_counters = 0;  // its agent can read them
  int32_t gpu_percent = -1;  // of the time in which its busiest GPU computed; -1: none, or unknown
  uint8_t is_on_disk = 0;    // a process of it waits for a disk or a network file system (state D)
  int32_t pid = 0;           // its first process; 0: it does not run
  uint64_t age_milliseconds = 0;  // since the start of that process
  // Means over its last training steps; 0 before the first.
  uint64_t step_microseconds = 0;
  uint32_t waited_thousandths = 0;  // of that time, until all ranks had agreed
  RankCounts counts{};
  ProcessUsage usage{};
  static auto fields(auto& m) {
    return std::tie(m.rank, m.activity, m.has_joined, m.has_counters, m.gpu_percent, m.is_on_disk,
                    m.pid, m.age_milliseconds, m.step_microseconds, m.waited_thousandths, m.counts,
                    m.usage);
  }
};

struct HostMetrics {
  Metrics sum;
  // Milliseconds since the last training step of any rank; -1: none has ended a step.
  int64_t step_age = -1;
  std::vector<RankMetrics> ranks;
  std::string remark;  // about what the agent cannot show, without the host's name; or empty
};

std::string encode(const HostMetrics& metrics);
Result<HostMetrics> decode_host_metrics(std::string_view bytes);

}  // namespace hvd::launcher
