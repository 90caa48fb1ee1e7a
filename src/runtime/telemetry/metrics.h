// Counters and histograms of this rank: plain numbers, read and written with the progress lock held,
// so that a count costs one addition. metrics.cpp and docs/metrics.md have their public names.
// Instruments owns them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/operations/op_traits.h"

namespace hvd::runtime {

enum class Counter : uint8_t {
  kSteps,
  kWakeups,
  kBatches,
  kBatchTensors,
  kFusedTensors,
  kMessages,
  kCacheHits,
  kCacheMisses,
  kStalls,
};
constexpr size_t kCounters = 9;

// Distribution of a number: how many values were at most bound(i), for bounds that double.
struct Histogram {
  static constexpr size_t kBounds = 32;
  std::array<uint64_t, kBounds + 1> counts{};  // in each bucket alone; the last is above all
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
  std::array<Histogram, kOpCount> latency{};  // microseconds from when it was taken up to its end
  Histogram negotiation{};                    // microseconds until all ranks had it
  Histogram batch_bytes{};
  Histogram batch_fill{};  // thousandths of the fusion threshold

  void count(Counter counter, uint64_t n = 1) { counters[static_cast<size_t>(counter)] += n; }
  void finished(int32_t op, bool ok, uint64_t size, std::chrono::nanoseconds took) {
    const auto index = static_cast<size_t>(op);
    if (index >= kOpCount) return;  // the runtime's own
    ++(ok ? done : failed)[index];
    bytes[index] += ok ? size : 0;
    latency[index].observe(microseconds(took));
  }
  void agreed(std::chrono::nanoseconds waited) { negotiation.observe(microseconds(waited)); }
  void batch(uint64_t tensors, uint64_t size, uint64_t threshold) {
    count(Counter::kBatches);
    count(Counter::kBatchTensors, tensors);
    if (tensors > 1) count(Counter::kFusedTensors, tensors);
    batch_bytes.observe(size);
    if (threshold > 0) batch_fill.observe(size / std::max<uint64_t>(threshold / 1000, 1));
  }
  static uint64_t microseconds(std::chrono::nanoseconds time) {
    return time.count() <= 0 ? 0 : static_cast<uint64_t>(time.count() + 999) / 1000;
  }
};

}  // namespace hvd::runtime
