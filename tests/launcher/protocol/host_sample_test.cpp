#include "launcher/protocol/host_sample.h"

#include <doctest/doctest.h>

#include <chrono>
#include <optional>
#include <variant>

#include "launcher/protocol/protocol.h"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

// A rank with steps of 10 ms, each with a wait of 1 ms in operation 5 and of 2 ms in operation 6.
RankCounters counters_with(uint64_t steps) {
  RankCounters counters;
  counters.rank = 1;
  counters.size = 4;
  counters.names.set(5, "layer1.bias");
  counters.names.set(6, "layer4.weight");
  std::chrono::steady_clock::time_point now{std::chrono::hours(1)};
  for (uint64_t step = 0; step <= steps; ++step) {
    counters.steps.step_ended(now += milliseconds(10), counters.metrics, 5);
    counters.steps.batch_ended(step, milliseconds(4));
    counters.steps.wait_ended(milliseconds(1), 5);
    counters.steps.wait_ended(milliseconds(2),
                              6 + (1 << 20));  // the slot had another name before
  }
  return counters;
}

// Encodes and decodes the sample; returns nothing if the bytes are refused.
std::optional<HostSample> again(const HostSample& sample, size_t cut = 0) {
  const Bytes bytes = encode(Sampled{1, sample});
  const auto message = decode(ByteView(bytes).first(bytes.size() - cut));
  if (!message.ok()) return {};
  return std::get<Sampled>(*message).sample;
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

TEST_CASE("a sample arrives as it was sent, and a cut one is refused") {
  HostSample sample{
      .metrics = {{.step_age = 1500, .ranks = {{.rank = 3, .pid = 12}}, .remark = "x"}},
      .signs = {{3, 1, 0, 5, 6, 7, 8, 9, 10, 11, 12}, {.rank = 4}},
      .places = {{3, 0, 1, "MPI", "bcast", "f", "train.py:8", "sleeping", 1ull << 60}},
      .steps = {steps_of(counters_with(60))},
      .announced = {{.rank = 2, .world_size = 4, .operations = 7, .joins = 1}}};
  sample.metrics[0].sum.finished(HVD_ALLREDUCE, true, 100, std::chrono::microseconds(3));
  sample.metrics[0].pressure.retransmits = 9;
  const auto read = again(sample);
  REQUIRE((read && read->metrics.size() == 1));
  const HostMetrics& metrics = read->metrics[0];
  CHECK((metrics.step_age == 1500 && metrics.ranks[0].pid == 12 && metrics.remark == "x"));
  CHECK((counts_of(metrics.sum).bytes == 100 && metrics.pressure.retransmits == 9));
  CHECK(
      (read->signs[0].rank == 3 && read->signs[0].socket_bytes == 12 && read->signs[1].rank == 4));
  CHECK((read->places[0].operation == "bcast" && read->places[0].frames == 1ull << 60));
  CHECK((read->steps[0].last.size() == 60 && read->steps[0].last[59].waited == 2000));
  CHECK(read->steps[0].last[59].wait_and_transfer() == 6000);
  CHECK((read->announced[0].operations == 7 && read->announced[0].joins == 1));
  CHECK(is_possible(*read));
  for (size_t cut = 1; cut < 100; ++cut) CHECK_FALSE(again(sample, cut));
  CHECK(is_possible(*again({})));
}

TEST_CASE("a sample with too few steps or too long a text is impossible") {
  HostSample sample{.steps = {steps_of(counters_with(60))}};
  sample.steps[0].ended = 59;
  CHECK_FALSE(is_possible(sample));
  CHECK_FALSE(is_possible({.places = {{.state = std::string(kMostPlaceText + 1, 'x')}}}));
}

}  // namespace hvd::launcher
