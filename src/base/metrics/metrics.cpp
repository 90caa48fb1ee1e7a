#include "base/metrics/metrics.h"

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

}  // namespace hvd
