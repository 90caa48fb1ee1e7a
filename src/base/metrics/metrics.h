// Counters and histograms of a rank: plain numbers, so that a count costs one addition. The runtime
// writes the numbers with the progress lock held. The numbers may lie in a page that another
// process reads (metrics_page.h). metrics_text.cpp and docs/metrics.md have their public names.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/operations/op_traits.h"

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

// A distribution: how many values were at most bound(i). Each bound doubles the previous one.
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
  std::array<Histogram, kOpCount> latency{};  // microseconds from submission to completion
  Histogram negotiation{};                    // microseconds until all ranks have submitted
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

}  // namespace hvd
