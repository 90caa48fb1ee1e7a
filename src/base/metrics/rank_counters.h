// The counters of a rank: metrics and the last training steps. The counters may lie in a page that
// another process reads (metrics_page.h). The runtime writes the counters with the progress lock held.
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

// The last training steps of a rank. A step ends when the ranks agree on a tensor's name for a second
// time. The ranks agree in the same order, so a step has the same number on each rank, counted from `first`.
struct StepLog {
  // More steps than kWindow, so that the windows of two hosts, read one after the other, overlap.
  static constexpr size_t kKept = 128;
  static constexpr size_t kWindow = 50;
  struct Step {
    uint32_t microseconds = 0;
    // The longest time until all ranks agreed on an operation of this step, including the
    // operation that begins the step, whose wait lies at the end of the previous step.
    uint32_t waited_microseconds = 0;
    uint64_t bytes = 0;  // input bytes of this rank's completed operations
    // The response cache id of the operation that waited longest; 0: it had no id.
    uint32_t longest = 0;
    // The event that ended the step, equal on each rank: an operation's id, or 0 and the number of
    // a group's call.
    uint32_t ended_by = 0;
    uint32_t call = 0;
    // The longest time in which a GPU executed a batch of this step: the wait for kernels of other ranks, and the
    // transfer; 0: no batch on a GPU.
    uint32_t device_microseconds = 0;

    // The differences between ranks are their lateness, because the transfer is equal on all ranks of a batch.
    uint64_t wait_and_transfer() const {
      return uint64_t{waited_microseconds} + device_microseconds;
    }
  };

  uint64_t ended = 0;  // steps; the last one lies at (ended - 1) % kKept
  std::array<Step, kKept> steps{};
  uint64_t first = 0;  // the value of `ended` from which all ranks counted all steps
  // Sums over all steps.
  uint64_t total_microseconds = 0;
  uint64_t total_waited = 0;
  // The longest median of a rank's wait_and_transfer(), in microseconds, written by the agent; 0: unknown.
  uint64_t longest_wait = 0;
  // The current step.
  std::chrono::nanoseconds began{0};  // on the steady clock; 0: no step has begun
  uint64_t bytes_before = 0;
  uint64_t waited = 0;
  uint64_t on_device = 0;
  uint32_t longest = 0;

  // `id`: id of the operation in the response cache.
  void wait_ended(std::chrono::nanoseconds took, uint32_t id = 0) {
    const uint64_t microseconds = Metrics::microseconds(took);
    if (microseconds < waited) return;
    waited = microseconds;
    longest = id;
  }
  // A GPU has executed a batch for this time. `step`: the value of `ended` when the ranks agreed on the batch; that step
  // may have ended, because a program does not wait for results that are ordered by streams.
  void batch_ended(uint64_t step, std::chrono::nanoseconds took);
  void step_ended(std::chrono::steady_clock::time_point now, const Metrics& metrics,
                  uint32_t id = 0, uint32_t call = 0);
  // Records that step numbers are equal on all ranks from here on, for example after all ranks have joined (hvd.join).
  void count_anew() { first = ended; }
};

// Means over the last steps of a rank, at most StepLog::kWindow.
struct StepMeans {
  double seconds = 0;       // per step
  double waited_share = 0;  // the share of that time spent until all ranks agreed
  double bytes = 0;         // per step
  // The time per step that the other ranks wait for this rank; unset if no launcher compares the ranks.
  std::optional<double> late_seconds;
};
// Returns nullopt before the end of the first step.
std::optional<StepMeans> means_of(const StepLog& log);

// Names of operations by their slot in the response cache. Set when the ranks first agree on a name.
class OperationNames {
 public:
  // A cache id combines a slot and a count of the slot's earlier uses.
  static constexpr uint32_t kSlotsOfCache = 1 << 20;
  static constexpr size_t kSlots = 512;
  static constexpr size_t kMostText = 55;

  void set(uint32_t slot, std::string_view name);
  // Returns the name of a slot; empty if it is unknown.
  std::string at(uint32_t slot) const;

 private:
  struct Name {
    uint8_t size = 0;
    std::array<char, kMostText> text{};
  };
  std::array<Name, kSlots> names_{};
};

// The number of world operations that a rank has announced. All ranks announce the same operations,
// so a rank that has announced more than another rank waits for that rank. Does not count operations of smaller
// process sets and groups, nor messages between two ranks.
struct Announcements {
  uint64_t operations = 0;  // number since all ranks last joined (hvd.join)
  // The number of begins and ends of joins. Odd: this rank has joined, and another rank has not.
  uint64_t joins = 0;
};

struct RankCounters {
  uint64_t layout = 0;  // in a page: kMetricsLayout once the rest is valid
  int32_t rank = 0;     // in the rank's world
  int32_t size = 0;
  Metrics metrics;
  StepLog steps;
  OperationNames names;
  Announcements announced;
};

}  // namespace hvd
