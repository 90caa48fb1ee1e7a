// The answers of an agent to Inspect with InspectDetail::kSteps, kPressure and kAnnounced: the last training steps of its
// ranks, what disturbs their processes, and how many operations they have announced. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/metrics/rank_counters.h"
#include "base/result.h"

namespace hvd::launcher {

struct StepSample {
  uint32_t microseconds = 0;
  uint32_t waited = 0;  // microseconds: the longest wait of an operation for other ranks
  // Both say what ended the step, as in StepLog: the same on each rank.
  uint32_t ended_by = 0;
  uint32_t call = 0;
  static auto fields(auto& m) { return std::tie(m.microseconds, m.waited, m.ended_by, m.call); }
};

struct RankSteps {
  int32_t rank = 0;        // number of its process in the plan
  int32_t world_size = 0;  // of the ranks that call each other
  uint64_t ended = 0;      // steps, numbered alike on each rank
  std::vector<StepSample> last{};
  // Microseconds: the sums over all steps.
  uint64_t total = 0, total_waited = 0;
  // The operation with the longest waits in `last`, at most OperationNames::kMostText bytes, not escaped; or empty.
  std::string awaited{};
  uint64_t awaited_microseconds = 0;
  static auto fields(auto& m) {
    return std::tie(m.rank, m.world_size, m.ended, m.last, m.total, m.total_waited, m.awaited,
                    m.awaited_microseconds);
  }
};
// Steps in `last`: agents answer at different moments, and their windows of 50 steps must meet.
constexpr size_t kMostStepSamples = 100;

RankSteps steps_of(const RankCounters& counters);

// Counts of the processes of a rank, and of its host and cgroup. Counts never fall.
struct RankPressure {
  int32_t rank = 0;
  uint8_t is_blocked = 0;  // a process of it is in uninterruptible sleep (D) now
  uint64_t cpu_microseconds = 0;
  uint64_t run_delay_microseconds = 0;
  uint64_t major_faults = 0;
  uint64_t throttled_microseconds = 0;  // of its cgroup, by a CPU quota
  uint64_t steal_microseconds = 0;      // of the host's processors, by a hypervisor
  uint64_t processors = 1;              // of the host
  uint64_t swapped_in = 0;              // pages of the host
  uint64_t retransmits = 0;             // TCP segments of the host
  static auto fields(auto& m) {
    return std::tie(m.rank, m.is_blocked, m.cpu_microseconds, m.run_delay_microseconds,
                    m.major_faults, m.throttled_microseconds, m.steal_microseconds, m.processors,
                    m.swapped_in, m.retransmits);
  }
};

// As Announcements, of a rank that counts them.
struct RankAnnounced {
  int32_t rank = 0;        // number of its process in the plan
  int32_t world_size = 0;  // of the ranks that call each other
  uint64_t operations = 0;
  uint64_t joins = 0;
  static auto fields(auto& m) { return std::tie(m.rank, m.world_size, m.operations, m.joins); }
};

std::string encode(const std::vector<RankSteps>& steps);
std::string encode(const std::vector<RankPressure>& pressures);
std::string encode(const std::vector<RankAnnounced>& announced);
Result<std::vector<RankSteps>> decode_steps(std::string_view bytes);
Result<std::vector<RankPressure>> decode_pressures(std::string_view bytes);
Result<std::vector<RankAnnounced>> decode_announced(std::string_view bytes);

}  // namespace hvd::launcher
