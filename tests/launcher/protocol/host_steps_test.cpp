#include "launcher/protocol/host_steps.h"

#include <doctest/doctest.h>

#include <chrono>

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

// A rank with so many steps of 10 ms, each with a wait of 1 ms in operation 5 and of 2 ms in operation 6.
RankCounters counters_with(uint64_t steps) {
  RankCounters counters;
  counters.rank = 1;
  counters.size = 4;
  counters.names.set(5, "layer1.bias");
  counters.names.set(6, "layer4.weight");
  std::chrono::steady_clock::time_point now{std::chrono::hours(1)};
  for (uint64_t step = 0; step <= steps; ++step) {
    counters.steps.step_ended(now += milliseconds(10), counters.metrics, 5);
    counters.steps.wait_ended(milliseconds(1), 5);
    counters.steps.wait_ended(milliseconds(2),
                              6 + (1 << 20));  // the slot has had another name before
  }
  return counters;
}

}  // namespace

TEST_CASE(
    "the last steps of a rank are those that all ranks number alike, with the name of the longest "
    "wait") {
  RankCounters counters = counters_with(300);
  RankSteps steps = steps_of(counters);
  CHECK((steps.ended == 300 && steps.last.size() == kMostStepSamples && steps.world_size == 4));
  CHECK((steps.last[0].microseconds == 10'000 && steps.last[0].waited == 2000));
  CHECK((steps.last[0].ended_by == 5 && steps.awaited == "layer4.weight"));
  CHECK((steps.total == 3'000'000 && steps.total_waited == 600'000));
  counters.steps.count_anew();
  CHECK((steps_of(counters).ended == 0 && steps_of(counters).last.empty()));
  CHECK(steps_of(RankCounters{}).awaited.empty());
}

TEST_CASE("steps and disturbances of ranks travel as bytes, and a cut or lying answer is refused") {
  RankSteps steps = steps_of(counters_with(60));
  steps.rank = 3;
  const std::string bytes = encode(std::vector{steps});
  const auto read = decode_steps(bytes);
  REQUIRE((read.ok() && read->size() == 1));
  CHECK(((*read)[0].rank == 3 && (*read)[0].last.size() == 60));
  CHECK(((*read)[0].last[59].waited == 2000 && (*read)[0].awaited == "layer4.weight"));
  for (size_t size = 0; size < bytes.size(); ++size)
    CHECK_FALSE(decode_steps(bytes.substr(0, size)).ok());
  steps.ended = 59;
  CHECK_FALSE(decode_steps(encode(std::vector{steps})).ok());
  const auto pressures =
      decode_pressures(encode(std::vector<RankPressure>{{.rank = 2, .retransmits = 9}}));
  REQUIRE(pressures.ok());
  CHECK(((*pressures)[0].rank == 2 && (*pressures)[0].retransmits == 9));
  const auto announced = decode_announced(encode(
      std::vector<RankAnnounced>{{.rank = 2, .world_size = 4, .operations = 7, .joins = 1}}));
  REQUIRE(announced.ok());
  CHECK(((*announced)[0].rank == 2 && (*announced)[0].operations == 7));
  CHECK(((*announced)[0].world_size == 4 && (*announced)[0].joins == 1));
}

}  // namespace hvd::launcher
