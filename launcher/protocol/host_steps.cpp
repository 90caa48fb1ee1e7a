#include "launcher/protocol/host_steps.h"

#include <algorithm>
#include <map>

#include "launcher/protocol/value_list.h"

namespace hvd::launcher {
namespace {

// A rank that ends a step in each microsecond needs centuries for more.
constexpr uint64_t kMostSteps = uint64_t{1} << 54;

}  // namespace

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
    steps.last.push_back({step.microseconds, step.waited_microseconds, step.ended_by, step.call});
    if (step.longest != 0) waits[step.longest] += step.waited_microseconds;
  }
  const auto most =
      std::ranges::max_element(waits, {}, [](const auto& wait) { return wait.second; });
  if (most == waits.end()) return steps;
  steps.awaited = counters.names.at(most->first % OperationNames::kSlotsOfCache);
  steps.awaited_microseconds = most->second;
  return steps;
}

std::string encode(const std::vector<RankSteps>& steps) { return encode_list(steps); }
std::string encode(const std::vector<RankPressure>& pressures) { return encode_list(pressures); }
std::string encode(const std::vector<RankAnnounced>& announced) { return encode_list(announced); }

Result<std::vector<RankSteps>> decode_steps(std::string_view bytes) {
  HVD_ASSIGN_OR_RETURN(auto steps, decode_list<RankSteps>(bytes, "the steps of ranks"));
  for (const RankSteps& rank : steps) {
    if (rank.ended > kMostSteps ||
        rank.last.size() != std::min<uint64_t>(rank.ended, kMostStepSamples) ||
        rank.awaited.size() > OperationNames::kMostText) {
      return invalid_argument("an agent reports more steps of a rank than there are");
    }
  }
  return steps;
}

Result<std::vector<RankPressure>> decode_pressures(std::string_view bytes) {
  return decode_list<RankPressure>(bytes, "the disturbances of ranks");
}

Result<std::vector<RankAnnounced>> decode_announced(std::string_view bytes) {
  return decode_list<RankAnnounced>(bytes, "the announcements of ranks");
}

}  // namespace hvd::launcher
