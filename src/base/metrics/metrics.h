// Counters and histograms of a rank: plain numbers, so that a count costs one addition. The runtime
// writes the numbers with the progress lock held. The numbers may lie in a page that another
// process reads (MetricsPages). metrics_text.cpp and docs/metrics.md have their public names.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/operations/op_traits.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd {

enum class Counter : uint8_t {
  kSteps,  // training steps; a repeated tensor name ends a step
  kPasses,
  kWakeups,
  kBatches,
  kBatchTensors,
  kFusedTensors,
  kMessages,
  kCacheHits,
  kCacheMisses,
  kStalls,
};
constexpr size_t kCounters = 10;

// A distribution of values. Bucket i counts the values above bound(i - 1) and up to bound(i). Each bound doubles the
// previous one.
struct Histogram {
  static constexpr size_t kBounds = 32;
  std::array<uint64_t, kBounds + 1> counts{};  // values per bucket; the last bucket has no bound
  uint64_t sum = 0;

  static constexpr uint64_t bound(size_t i) { return uint64_t{1} << i; }
  void observe(uint64_t value) {
    const auto index = static_cast<size_t>(std::bit_width(value == 0 ? 0 : value - 1));
    ++counts[std::min(index, kBounds)];
    sum += value;
  }
};

struct Metrics {
  std::array<uint64_t, kCounters> counters{};
  std::array<uint64_t, kOpCount> done{};
  std::array<uint64_t, kOpCount> failed{};
  std::array<uint64_t, kOpCount> bytes{};
  std::array<Histogram, kOpCount>
      latency{};            // microseconds from the submission queue to completion
  Histogram negotiation{};  // microseconds until all ranks have submitted
  Histogram batch_bytes{};
  Histogram batch_fill{};  // thousandths of the fusion threshold
  uint64_t pending = 0;    // submissions that are not complete
  // The end of the last training step, in nanoseconds of the steady clock; 0 before the first end.
  uint64_t stepped_at = 0;

  void count(Counter counter, uint64_t n = 1) { counters[static_cast<size_t>(counter)] += n; }
  void finished(int32_t op, bool ok, uint64_t size, std::chrono::nanoseconds took) {
    const auto index = static_cast<size_t>(op);
    if (index >= kOpCount) return;  // an internal operation of the runtime
    ++(ok ? done : failed)[index];
    bytes[index] += ok ? size : 0;
    latency[index].observe(microseconds(took));
  }
  // Records the end of a training step, at which the tensors' names are used again. The first call counts
  // two steps: a name is remembered from its second use on, so no call reports the end of the first step.
  void stepped(std::chrono::steady_clock::time_point now) {
    count(Counter::kSteps, counters[static_cast<size_t>(Counter::kSteps)] == 0 ? 2 : 1);
    stepped_at = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count());
  }
  void agreed(std::chrono::nanoseconds waited) { negotiation.observe(microseconds(waited)); }
  void batch(uint64_t tensors, uint64_t size, uint64_t threshold) {
    count(Counter::kBatches);
    count(Counter::kBatchTensors, tensors);
    if (tensors > 1) count(Counter::kFusedTensors, tensors);
    batch_bytes.observe(size);
    if (threshold > 0) batch_fill.observe(size / std::max<uint64_t>(threshold / 1000, 1));
  }
  // Adds the counts of another rank. The sum has the training steps of the rank with the most steps.
  void add(const Metrics& other);
  static uint64_t microseconds(std::chrono::nanoseconds time) {
    return time.count() <= 0 ? 0 : static_cast<uint64_t>(time.count() + 999) / 1000;
  }
};

// The last training steps of a rank. A step ends when the ranks agree on a tensor's name for a second
// time. The ranks agree in the same order, so a step has the same number on each rank, counted from `first`.
struct StepLog {
  // More steps than kWindow, so that the windows of two hosts, read one after the other, overlap.
  static constexpr size_t kKept = 128;
  static constexpr size_t kWindow = 50;
  struct Step {
    uint32_t microseconds = 0;
    // The longest time until all ranks agreed on an operation of this step. The wait for the first operation belongs to
    // this step, although it lies at the end of the previous one.
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

    // The transfer takes the same time on all ranks of a batch, so a difference between two ranks is a difference of
    // their waits.
    uint64_t wait_and_transfer() const {
      return uint64_t{waited_microseconds} + device_microseconds;
    }
  };

  uint64_t ended = 0;  // steps; the last one lies at (ended - 1) % kKept
  std::array<Step, kKept> steps{};
  uint64_t first = 0;  // the value of `ended` from which step numbers are equal on all ranks
  // Sums over all steps.
  uint64_t total_microseconds = 0;
  uint64_t total_waited = 0;
  // The largest of all ranks' medians of wait_and_transfer(), in microseconds, written by the agent; 0: unknown.
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
  // Records the time in which a GPU executed a batch. `step`: the value of `ended` when the ranks agreed on the batch;
  // that step may have ended, because a program does not wait for results that are ordered by streams.
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

// All counters of a rank, in a page (MetricsPages) or in the rank's own memory.
struct RankCounters {
  uint64_t layout = 0;  // in a page: kMetricsLayout once the rest is valid
  int32_t rank = 0;     // in the rank's world
  int32_t size = 0;
  Metrics metrics;
  StepLog steps;
  OperationNames names;
  Announcements announced;
};

// Identifies the layout of a page: "HVDM", a version, and the size. A reader ignores a page of another layout.
constexpr uint64_t kMetricsLayout =
    (uint64_t{0x4856444d} << 32) | (uint64_t{3} << 16) | sizeof(RankCounters);

// The counters of a host's ranks, in memory that the ranks write and another process reads. The reader
// needs no reply, so it can read the counters of a rank that hangs, is stopped or has ended. A rank
// opens the memory as /proc/PID/fd/NUMBER of the agent, not as an inherited descriptor: programs
// between the agent and the rank, for example Python's subprocess module, close inherited descriptors.
// The agent owns this object. For one thread.
class MetricsPages {
 public:
  static Result<MetricsPages> create(size_t count);
  MetricsPages(MetricsPages&& other) noexcept;
  MetricsPages& operator=(MetricsPages&&) = delete;
  ~MetricsPages();

  // Returns the value of HOROVOD_METRICS_PAGE for one rank: "/proc/PID/fd/NUMBER:OFFSET".
  std::string place_of(size_t index) const;
  // Returns nullopt until a rank has called MetricsPage::begin().
  std::optional<RankCounters> read(size_t index) const;
  // Sets StepLog::longest_wait of a rank.
  void set_longest_wait(size_t index, uint64_t microseconds) const;

 private:
  MetricsPages(UniqueFd file, size_t stride, size_t count, const std::byte* memory)
      : file_(std::move(file)), stride_(stride), count_(count), memory_(memory) {}

  UniqueFd file_;
  size_t stride_;
  size_t count_;
  const std::byte* memory_;
};

// The page of this process's rank; the process is the rank or one of its children. Lives as long as the process.
class MetricsPage {
 public:
  // Returns an error if the memory no longer exists or is not a page, or if another process uses the page.
  static Result<std::unique_ptr<MetricsPage>> open(const std::string& place);
  MetricsPage(const MetricsPage&) = delete;
  ~MetricsPage();

  // Sets the rank, the size and all counters for a start of this rank, and makes the page valid for readers.
  RankCounters* begin(int32_t rank, int32_t size);

 private:
  MetricsPage(UniqueFd file, RankCounters* counters)
      : file_(std::move(file)), counters_(counters) {}

  UniqueFd file_;  // holds the lock
  RankCounters* counters_;
};

}  // namespace hvd
