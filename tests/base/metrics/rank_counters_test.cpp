#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "base/metrics/metrics.h"
#include "horovod/types.h"

namespace hvd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A rank whose steps take 10 ms.
struct Rank {
  void step(microseconds wait, uint64_t bytes = 100) {
    now += milliseconds(10);
    log.step_ended(now, metrics);
    log.wait_ended(wait);
    log.wait_ended(wait / 2);
    metrics.finished(HVD_ALLREDUCE, true, bytes, microseconds(5));
  }
  std::chrono::steady_clock::time_point now{std::chrono::hours(1)};
  Metrics metrics;
  StepLog log;
};

}  // namespace

TEST_CASE("a step has its longest wait and its bytes") {
  Rank rank;
  rank.step(milliseconds(2), 40);
  CHECK(!means_of(rank.log));
  rank.step(milliseconds(3), 60);
  CHECK(rank.log.ended == 1);
  const StepLog::Step& first = rank.log.steps[0];
  CHECK((first.microseconds == 10'000 && first.waited_microseconds == 2'000 && first.bytes == 40));
  rank.step(milliseconds(0));
  const auto means = means_of(rank.log);
  REQUIRE(means);
  CHECK(means->seconds == doctest::Approx(0.010));
  CHECK(means->waited_share == doctest::Approx(0.25));
  CHECK(means->bytes == doctest::Approx(50));
  CHECK(!means->late_seconds);
}

TEST_CASE("means are over the last 50 steps, and a wait is no more than its step") {
  Rank rank;
  for (int i = 0; i < 300; ++i) rank.step(milliseconds(9), 1000);
  for (int i = 0; i < 51; ++i) rank.step(milliseconds(70), 10);
  const auto means = means_of(rank.log);
  REQUIRE(means);
  CHECK(rank.log.ended == 350);
  CHECK((means->waited_share == doctest::Approx(1) && means->bytes == doctest::Approx(10)));
}

TEST_CASE("a rank is late by what others wait longer") {
  Rank rank;
  for (int i = 0; i < 40; ++i) rank.step(milliseconds(i < 30 ? 1 : 8));
  rank.log.longest_wait = 5'000;
  CHECK(*means_of(rank.log)->late_seconds == doctest::Approx(0.004));
  rank.log.longest_wait = 500;
  CHECK(*means_of(rank.log)->late_seconds == 0);
}

TEST_CASE("a step keeps the operation with its longest wait, and the one that ended it") {
  StepLog log;
  const Metrics metrics;
  std::chrono::steady_clock::time_point now{std::chrono::hours(1)};
  log.step_ended(now, metrics, 7);
  log.wait_ended(milliseconds(2), 8);
  log.wait_ended(milliseconds(5), 9);
  log.wait_ended(milliseconds(1), 10);
  log.step_ended(now += milliseconds(4), metrics, 7);
  log.step_ended(now += milliseconds(4), metrics, 11);
  REQUIRE(log.ended == 2);
  CHECK((log.steps[0].longest == 9 && log.steps[0].ended_by == 7));
  CHECK((log.steps[1].longest == 0 && log.steps[1].ended_by == 11));
  // A wait is at most as long as its step.
  CHECK((log.total_microseconds == 8000 && log.total_waited == 4000));
  log.count_anew();
  CHECK(log.first == 2);
}

TEST_CASE("the time of a batch on a GPU belongs to the step in which the ranks agreed on it") {
  Rank rank;
  for (int i = 0; i < 4; ++i) rank.step(milliseconds(1));
  REQUIRE(rank.log.ended == 3);
  const uint64_t waited = rank.log.total_waited;
  rank.log.batch_ended(1, milliseconds(7));
  rank.log.batch_ended(1, milliseconds(3));
  rank.log.batch_ended(3, milliseconds(4));  // the current step
  rank.step(milliseconds(1));
  const auto of = [&](size_t step) { return rank.log.steps[step].device_microseconds; };
  CHECK((of(0) == 0 && of(1) == 7'000 && of(2) == 0 && of(3) == 4'000));
  CHECK(rank.log.steps[1].wait_and_transfer() == 8'000);
  // The transfer is no wait for other ranks.
  CHECK(rank.log.steps[1].waited_microseconds == 1'000);
  CHECK(rank.log.total_waited == waited + 1'000);
  rank.log.longest_wait = 9'000;  // the rank's median is 5 ms
  CHECK(*means_of(rank.log)->late_seconds == doctest::Approx(0.004));
  for (size_t i = 0; i < StepLog::kKept + 1; ++i) rank.step(milliseconds(0));
  rank.log.batch_ended(3, milliseconds(9));  // no longer kept
  for (const StepLog::Step& step : rank.log.steps) CHECK(step.device_microseconds == 0);
}

TEST_CASE("a name of an operation is kept by its slot, and cut") {
  const auto names = std::make_unique<OperationNames>();
  names->set(3, "layer4.weight");
  names->set(4, std::string(100, 'x'));
  names->set(OperationNames::kSlots, "too many");
  CHECK(names->at(3) == "layer4.weight");
  CHECK(names->at(4) == std::string(OperationNames::kMostText, 'x'));
  CHECK((names->at(5).empty() && names->at(OperationNames::kSlots).empty()));
}

}  // namespace hvd
