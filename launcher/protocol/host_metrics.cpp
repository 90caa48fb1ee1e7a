#include "launcher/protocol/host_metrics.h"

#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/bytes.h"
#include "base/wire/value_bytes.h"

namespace hvd::launcher {
namespace {

static_assert(std::is_trivially_copyable_v<Metrics>);

uint64_t sum_of(const std::array<uint64_t, kOpCount>& values) {
  uint64_t sum = 0;
  for (const uint64_t value : values) sum += value;
  return sum;
}

}  // namespace

RankCounts counts_of(const Metrics& metrics) {
  return {.steps = metrics.counters[static_cast<size_t>(Counter::kSteps)],
          .operations = sum_of(metrics.done),
          .failed_operations = sum_of(metrics.failed),
          .bytes = sum_of(metrics.bytes),
          .waited_microseconds = metrics.negotiation.sum,
          .pending = metrics.pending};
}

std::string encode(const HostMetrics& metrics) {
  ByteWriter out;
  out.put_raw(std::as_bytes(std::span(&metrics.sum, 1)));
  put(out, metrics.step_age);
  put(out, metrics.ranks);
  out.put_text(metrics.remark);
  return std::string(as_text(out.view()));
}

Result<HostMetrics> decode_host_metrics(std::string_view bytes) {
  ByteReader in(as_bytes(bytes));
  HostMetrics metrics;
  const ByteView raw = in.get_raw(sizeof metrics.sum);
  if (!raw.empty()) std::memcpy(static_cast<void*>(&metrics.sum), raw.data(), raw.size());
  get(in, metrics.step_age);
  get(in, metrics.ranks);
  metrics.remark = in.get_text();
  HVD_RETURN_IF_ERROR(in.finish("the metrics of a host"));
  return metrics;
}

}  // namespace hvd::launcher
