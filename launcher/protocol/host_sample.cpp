#include "launcher/protocol/host_sample.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <span>
#include <type_traits>

namespace hvd {

static_assert(std::is_trivially_copyable_v<Metrics>);

void put(ByteWriter& to, const Metrics& metrics) {
  to.put_raw(std::as_bytes(std::span(&metrics, 1)));
}

void get(ByteReader& from, Metrics& metrics) {
  const ByteView raw = from.get_raw(sizeof metrics);
  if (!raw.empty()) std::memcpy(static_cast<void*>(&metrics), raw.data(), raw.size());
}

}  // namespace hvd

namespace hvd::launcher {
namespace {

// A rank with one step per microsecond would need centuries to exceed this number.
constexpr uint64_t kMostSteps = uint64_t{1} << 54;

}  // namespace

RankCounts counts_of(const Metrics& metrics) {
  const auto sum = [](const std::array<uint64_t, kOpCount>& values) {
    return std::accumulate(values.begin(), values.end(), uint64_t{0});
  };
  return {.steps = metrics.counters[static_cast<size_t>(Counter::kSteps)],
          .operations = sum(metrics.done),
          .failed_operations = sum(metrics.failed),
          .bytes = sum(metrics.bytes),
          .waited_microseconds = metrics.negotiation.sum,
          .pending = metrics.pending};
}

RankSteps steps_of(const RankCounters& counters) {
  const StepLog& log = counters.steps;
  const uint64_t alike = log.ended - std::min(log.ended, log.first);
  RankSteps steps{.world_size = counters.size,
                  .ended = alike,
                  .total = log.total_microseconds,
                  .total_waited = log.total_waited};
  std::map<uint32_t, uint64_t> waits;
  for (uint64_t left = std::min<uint64_t>(alike, kMostStepSamples); left > 0; --left) {
    const StepLog::Step& step = log.steps[(log.ended - left) % StepLog::kKept];
    steps.last.push_back({step.microseconds, step.waited_microseconds, step.ended_by, step.call,
                          step.device_microseconds});
    if (step.longest != 0) waits[step.longest] += step.waited_microseconds;
  }
  const auto most =
      std::ranges::max_element(waits, {}, [](const auto& wait) { return wait.second; });
  if (most == waits.end()) return steps;
  steps.awaited = counters.names.at(most->first % OperationNames::kSlotsOfCache);
  steps.awaited_microseconds = most->second;
  return steps;
}

bool is_possible(const HostSample& sample) {
  const auto has_steps = [](const RankSteps& rank) {
    return rank.ended <= kMostSteps &&
           rank.last.size() == std::min<uint64_t>(rank.ended, kMostStepSamples) &&
           rank.awaited.size() <= OperationNames::kMostText;
  };
  const auto is_short = [](const RankPlace& place) {
    return std::ranges::all_of(
        std::array{&place.library, &place.operation, &place.function, &place.line, &place.state},
        [](const std::string* text) { return text->size() <= kMostPlaceText; });
  };
  return std::ranges::all_of(sample.steps, has_steps) &&
         std::ranges::all_of(sample.places, is_short);
}

}  // namespace hvd::launcher
