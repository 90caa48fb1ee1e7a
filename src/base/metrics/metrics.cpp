#include "base/metrics/metrics.h"

#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

namespace hvd {
namespace {

template <size_t N>
void add_all(std::array<uint64_t, N>& to, const std::array<uint64_t, N>& from) {
  for (size_t i = 0; i < N; ++i) to[i] += from[i];
}

void add_all(Histogram& to, const Histogram& from) {
  add_all(to.counts, from.counts);
  to.sum += from.sum;
}

uint32_t clamped(uint64_t microseconds) {
  return static_cast<uint32_t>(std::min<uint64_t>(microseconds, UINT32_MAX));
}

}  // namespace

void Metrics::add(const Metrics& other) {
  uint64_t& steps = counters[static_cast<size_t>(Counter::kSteps)];
  const uint64_t most = std::max(steps, other.counters[static_cast<size_t>(Counter::kSteps)]);
  add_all(counters, other.counters);
  steps = most;
  add_all(done, other.done);
  add_all(failed, other.failed);
  add_all(bytes, other.bytes);
  for (size_t op = 0; op < kOpCount; ++op) add_all(latency[op], other.latency[op]);
  add_all(negotiation, other.negotiation);
  add_all(batch_bytes, other.batch_bytes);
  add_all(batch_fill, other.batch_fill);
  pending += other.pending;
  stepped_at = std::max(stepped_at, other.stepped_at);
}

void StepLog::step_ended(std::chrono::steady_clock::time_point now, const Metrics& metrics,
                         uint32_t id, uint32_t call) {
  const std::chrono::nanoseconds since_start = now.time_since_epoch();
  const uint64_t bytes = std::accumulate(metrics.bytes.begin(), metrics.bytes.end(), uint64_t{0});
  if (began.count() != 0) {
    const uint64_t took = Metrics::microseconds(since_start - began);
    steps[ended % kKept] = {.microseconds = clamped(took),
                            .waited_microseconds = clamped(waited),
                            .bytes = bytes - bytes_before,
                            .longest = longest,
                            .ended_by = id,
                            .call = call,
                            .device_microseconds = clamped(on_device)};
    total_microseconds += took;
    // The wait lies mostly in the previous step, and may be longer than this step.
    total_waited = std::min(total_waited + waited, total_microseconds);
    // Publish the step last: a reader in another process ignores a step that is being written.
    std::atomic_ref(ended).store(ended + 1, std::memory_order_release);
  }
  began = since_start;
  bytes_before = bytes;
  waited = 0;
  on_device = 0;
  longest = 0;
}

void StepLog::batch_ended(uint64_t step, std::chrono::nanoseconds took) {
  const uint64_t microseconds = Metrics::microseconds(took);
  if (step == ended) {
    on_device = std::max(on_device, microseconds);
  } else if (ended - step <= kKept) {
    uint32_t& past = steps[step % kKept].device_microseconds;
    past = std::max(past, clamped(microseconds));
  }
}

void OperationNames::set(uint32_t slot, std::string_view name) {
  if (slot >= kSlots) return;
  Name& to = names_[slot];
  to.size = static_cast<uint8_t>(std::min(name.size(), kMostText));
  std::memcpy(to.text.data(), name.data(), to.size);
}

std::string OperationNames::at(uint32_t slot) const {
  if (slot >= kSlots) return {};
  const Name& name = names_[slot];
  return {name.text.data(), std::min<size_t>(name.size, kMostText)};
}

std::optional<StepMeans> means_of(const StepLog& log) {
  const size_t count = std::min<uint64_t>(log.ended, StepLog::kWindow);
  if (count == 0) return {};
  uint64_t time = 0, waited = 0, bytes = 0;
  std::vector<uint64_t> waits;
  for (uint64_t step = log.ended - count; step < log.ended; ++step) {
    const StepLog::Step& one = log.steps[step % StepLog::kKept];
    time += one.microseconds;
    // An operation may have begun to wait before the step began.
    waited += std::min(one.waited_microseconds, one.microseconds);
    bytes += one.bytes;
    waits.push_back(one.wait_and_transfer());
  }
  const auto steps = static_cast<double>(count);
  StepMeans means{.seconds = static_cast<double>(time) * 1e-6 / steps,
                  .waited_share = static_cast<double>(waited) /
                                  static_cast<double>(std::max<uint64_t>(time, 1)),
                  .bytes = static_cast<double>(bytes) / steps,
                  .late_seconds = {}};
  if (log.longest_wait != 0) {
    std::ranges::nth_element(waits, waits.begin() + static_cast<ptrdiff_t>(count / 2));
    const uint64_t own = waits[count / 2];
    means.late_seconds =
        static_cast<double>(log.longest_wait - std::min(own, log.longest_wait)) * 1e-6;
  }
  return means;
}

}  // namespace hvd
