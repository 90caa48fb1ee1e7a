#include "launcher/observe/rules/step_alignment.h"

#include <doctest/doctest.h>

namespace hvd::launcher {
namespace {

// Two ranks with these numbers of steps of 10 ms; the first rank waits 3 ms in each step.
std::map<int, StepAlignment::Rank> ranks_with(uint64_t first, uint64_t second) {
  std::map<int, StepAlignment::Rank> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    RankSteps steps{.rank = rank, .world_size = 2, .ended = rank == 0 ? first : second};
    const uint64_t kept = std::min<uint64_t>(steps.ended, kMostStepSamples);
    for (uint64_t step = steps.ended - kept; step < steps.ended; ++step)
      steps.last.push_back({10'000, rank == 0 ? 3000u : 0u, static_cast<uint32_t>(step)});
    steps.total = steps.ended * 10'000;
    steps.total_waited = steps.ended * (rank == 0 ? 3000 : 0);
    steps.awaited = rank == 0 ? "layer4.weight" : "layer1.bias";
    steps.awaited_microseconds = rank == 0 ? 1000 : 10;
    ranks[rank] = {rank, steps};
  }
  return ranks;
}

}  // namespace

TEST_CASE("each window has the same steps of all ranks, and follows the last one") {
  StepAlignment alignment;
  CHECK((alignment.take({}).empty() && alignment.left() == 0));
  CHECK((alignment.take(ranks_with(0, 0)).empty() && !alignment.has_moved()));
  CHECK((alignment.take(ranks_with(49, 60)).empty() && alignment.left() == 1));
  CHECK(alignment.has_moved());
  auto windows = alignment.take(ranks_with(55, 50));
  REQUIRE(windows.size() == 1);
  CHECK((windows[0].first == 0 && windows[0].ranks.size() == 2));
  CHECK((windows[0].ranks[1].steps.size() == 50 && windows[0].ranks[1].steps[49].ended_by == 49));
  CHECK((windows[0].ranks[1].host == 1 && alignment.left() == 50));
  CHECK(alignment.take(ranks_with(55, 50)).empty());
  CHECK(!alignment.has_moved());
  windows = alignment.take(ranks_with(150, 151));
  REQUIRE(windows.size() == 1);  // one rank no longer has the steps from 50 on
  CHECK(windows[0].first == 100);
  windows = alignment.take(ranks_with(250, 250));
  REQUIRE(windows.size() == 2);
  CHECK((windows[0].first == 150 && windows[1].first == 200));
}

TEST_CASE("ranks that begin again are aligned again") {
  StepAlignment alignment;
  CHECK(alignment.take(ranks_with(300, 300)).size() == 1);
  CHECK(alignment.take(ranks_with(3, 310)).empty());
  const auto windows = alignment.take(ranks_with(52, 53));
  REQUIRE(windows.size() == 1);
  CHECK(windows[0].first == 0);
}

TEST_CASE("ranks of other worlds, and other steps, have no window") {
  StepAlignment alignment;
  auto ranks = ranks_with(60, 60);
  ranks[1].steps.world_size = 1;
  CHECK(alignment.take(ranks).empty());
  ranks = ranks_with(60, 60);
  SUBCASE("by name") { ranks[1].steps.last[30].ended_by = 12345; }
  SUBCASE("by the call of a group") { ranks[1].steps.last[30].call = 12345; }
  CHECK(alignment.take(ranks).empty());
  // Agents whose samples are far apart in time.
  CHECK(alignment.take(ranks_with(300, 500)).empty());
}

TEST_CASE("the line at the end says how much the ranks waited, for whom, and in which operation") {
  const std::vector<std::string> hosts = {"a", "b"};
  StepAlignment alignment;
  WaitTally tally;
  for (uint64_t ended = 50; ended <= 200; ended += 50) {
    CHECK(tally.summary(hosts).empty());
    const auto ranks = ranks_with(ended, ended);
    tally.take(ranks);
    for (const StepWindow& window : alignment.take(ranks)) tally.take(window);
  }
  CHECK(tally.summary(hosts) ==
        "ranks waited 15 % of the time, most often for rank 1 (b), in layer4.weight");
  auto waits = tally.waits();
  REQUIRE(waits.size() == 2);
  CHECK((waits[0].late_seconds == 0 && waits[0].waited_seconds == doctest::Approx(0.6)));
  CHECK((waits[1].late_seconds == doctest::Approx(0.6) && waits[1].waited_seconds == 0));
  // Another 20 ms of transfer on all GPUs changes no lateness, and is no wait.
  auto ranks = ranks_with(250, 250);
  for (auto& [rank, each] : ranks)
    for (StepSample& step : each.steps.last) step.device = 20'000;
  tally.take(ranks);
  for (const StepWindow& window : alignment.take(ranks)) tally.take(window);
  waits = tally.waits();
  CHECK((waits[0].late_seconds == 0 && waits[1].late_seconds == doctest::Approx(0.75)));
  CHECK((waits[0].waited_seconds == doctest::Approx(0.75) && waits[1].waited_seconds == 0));
  tally.take(ranks_with(10, 10));  // the ranks have restarted
  CHECK(tally.waits()[0].waited_seconds == doctest::Approx(0.78));
}

}  // namespace hvd::launcher
