// All that a rank counts: metrics, and its last training steps. May lie in a page that another process reads meanwhile
// (metrics_page.h). The runtime writes it with the progress lock held.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/metrics/metrics.h"

namespace hvd {

// The last training steps of a rank. A step ends when the ranks agree on the name of a tensor that comes again, which
// all ranks do in the same order: a step has the same number on each rank, counted from `first` on.
struct StepLog {
  // More than a window has, so that the windows of two hosts that are read one after the other meet.
  static constexpr size_t kKept = 128;
  static constexpr size_t kWindow = 50;
  struct Step {
    uint32_t microseconds = 0;
    // The longest wait of an operation of all ranks until they had agreed on it. The operation that begins the step
    // counts here, and its wait lies at the end of the step before.
    uint32_t waited_microseconds = 0;
    uint64_t bytes = 0;  // input of this rank in operations that completed
    // The id in the response cache of the operation with that wait; 0: it had none.
    uint32_t longest = 0;
    // Both say what ended the step, the same on each rank: the id of an operation, or 0 and the number of a call of a
    // group.
    uint32_t ended_by = 0;
    uint32_t call = 0;
  };

  uint64_t ended = 0;  // steps; the last one lies at (ended - 1) % kKept
  std::array<Step, kKept> steps{};
  uint64_t first = 0;  // the number of `ended` from which on each rank has had all steps
  // The sums over all steps.
  uint64_t total_microseconds = 0;
  uint64_t total_waited = 0;
  // The median of the longest wait of any rank in a step, in microseconds, which the agent writes; 0: unknown.
  uint64_t longest_wait = 0;
  // The step that runs.
  std::chrono::nanoseconds began{0};  // by the steady clock; 0: none runs yet
  uint64_t bytes_before = 0;
  uint64_t waited = 0;
  uint32_t longest = 0;

  // `id`: of the operation.
  void wait_ended(std::chrono::nanoseconds took, uint32_t id = 0) {
    const uint64_t microseconds = Metrics::microseconds(took);
    if (microseconds < waited) return;
    waited = microseconds;
    longest = id;
  }
  void step_ended(std::chrono::steady_clock::time_point now, const Metrics& metrics,
                  uint32_t id = 0, uint32_t call = 0);
  // Ranks have had different numbers of steps until now: one of them had joined (hvd.join).
  void count_anew() { first = ended; }
};

// Over the last steps of a rank, at most StepLog::kWindow.
struct StepMeans {
  double seconds = 0;       // of a step
  double waited_share = 0;  // of that time, until all ranks had agreed
  double bytes = 0;         // in a step
  // How long the other ranks wait for this one in a step; empty where no launcher compares the ranks.
  std::optional<double> late_seconds;
};
// Nothing before the first step has ended.
std::optional<StepMeans> means_of(const StepLog& log);

// Names of operations, by their slot in the response cache. A name is written when the ranks first agree on it.
class OperationNames {
 public:
  // An id of the cache is a slot, and how often the slot was used before.
  static constexpr uint32_t kSlotsOfCache = 1 << 20;
  static constexpr size_t kSlots = 512;
  static constexpr size_t kMostText = 55;

  void set(uint32_t slot, std::string_view name);
  // Empty: unknown.
  std::string at(uint32_t slot) const;

 private:
  struct Name {
    uint8_t size = 0;
    std::array<char, kMostText> text{};
  };
  std::array<Name, kSlots> names_{};
};

// How many operations of all ranks of its world a rank has announced. All ranks announce the same ones, so that a rank
// that has announced more than another waits for that one. Not counted are operations of smaller process sets and of
// groups, and messages between two ranks.
struct Announcements {
  uint64_t operations = 0;  // since all ranks joined last (hvd.join)
  // Begins and ends of joins; odd: this rank has joined, and another one has not.
  uint64_t joins = 0;
};

struct RankCounters {
  uint64_t layout = 0;  // in a page: kMetricsLayout once the rest is valid
  int32_t rank = 0;     // in its world
  int32_t size = 0;
  Metrics metrics;
  StepLog steps;
  OperationNames names;
  Announcements announced;
};

}  // namespace hvd
