#include "launcher/observe/rules/straggler_rule.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "base/text.h"
#include "launcher/observe/rules/straggler_cause.h"

namespace hvd::launcher {
namespace {

using Kind = StragglerKind;

// Ranks that meet in one operation in each step after their first 100 steps. A rank works for 40
// ms, with log-normal noise of 8 %; 1 % of its steps take 1.5 times as long, 2 % 1.2 times.
struct SimulatedJob {
  explicit SimulatedJob(int size, int ranks_of_host = 4, uint32_t seed = 1) : random(seed) {
    window.first = 100;
    for (int rank = 0; rank < size; ++rank)
      window.ranks.push_back({rank, rank / ranks_of_host, {}});
  }

  // `more`: a rank's additional work in a step, as a share of the step.
  std::vector<StragglerFinding> run(int windows,
                                    const std::function<double(int rank, uint64_t step)>& more) {
    std::vector<StragglerFinding> found;
    for (int i = 0; i < windows; ++i) {
      for (auto& rank : window.ranks) rank.steps.clear();
      for (size_t n = 0; n < StepWindow::kSteps; ++n) add_step(window.first + n, more);
      const auto judged = rule.judge(window);
      found.insert(found.end(), judged.begin(), judged.end());
      window.first += StepWindow::kSteps;
    }
    return found;
  }

  void add_step(uint64_t number, const std::function<double(int rank, uint64_t step)>& more) {
    std::vector<double> work;
    for (const auto& rank : window.ranks) {
      double share = noise == 0 ? 1 : std::lognormal_distribution(0.0, noise)(random);
      const double chance = std::uniform_real_distribution(0.0, 1.0)(random);
      if (noise > 0) share += chance < 0.01 ? 0.5 : chance < 0.03 ? 0.2 : 0;
      work.push_back(40'000 * scale * (share + more(rank.rank, number)));
    }
    const double longest = *std::max_element(work.begin(), work.end());
    for (size_t rank = 0; rank < work.size(); ++rank) {
      window.ranks[rank].steps.push_back(
          {static_cast<uint32_t>(longest), static_cast<uint32_t>(longest - work[rank]), phase});
    }
  }

  std::mt19937 random;
  double noise = 0.08;
  double scale = 1;
  uint32_t phase = 7;
  StepWindow window;
  StragglerRule rule;
};

const auto kHealthy = [](int, uint64_t) { return 0.0; };

auto late(int which, double share) {
  return [=](int rank, uint64_t) { return rank == which ? share : 0.0; };
}

std::string say(const StragglerFinding& finding) {
  const std::vector<std::string> hosts = {"a", "a", "a", "a", "b", "b", "b", "b"};
  return straggler_sentence(finding, "the program itself", {}, hosts);
}

}  // namespace

TEST_CASE("healthy ranks are no stragglers, however many there are") {
  const std::vector<std::pair<int, int>> cases = {{2, 400},  {3, 400},  {4, 400}, {8, 400},
                                                  {16, 200}, {64, 100}, {512, 10}};
  for (const auto& each : cases) {
    SimulatedJob job(each.first);
    const auto found = job.run(each.second, kHealthy);
    CHECK_MESSAGE(found.empty(), each.first, " ranks: ", found.size());
  }
}

TEST_CASE("a rank that is 15 % slower is found in two windows") {
  for (const int size : {2, 4, 8, 16, 64}) {
    int in_time = 0;
    constexpr int kEpisodes = 40;
    for (uint32_t seed = 0; seed < 1u * kEpisodes; ++seed) {
      SimulatedJob job(size, 4, seed);
      const int which = static_cast<int>(seed) % size;
      for (const StragglerFinding& found : job.run(2, late(which, 0.15))) {
        CHECK_MESSAGE(found.ranks == std::vector{which}, size, " ranks");
        CHECK((found.kind == Kind::kConstant && found.is_one_of_two == (size == 2)));
        ++in_time;
      }
    }
    MESSAGE(size, " ranks: ", in_time, " of ", kEpisodes);
    // In a small job, a rank is compared with few ranks.
    CHECK_MESSAGE(in_time >= (size < 8 ? 0.6 : 0.8) * kEpisodes, size, " ranks: ", in_time);
  }
}

TEST_CASE("an episode has one sentence, and ends after three windows") {
  SimulatedJob job(4);
  CHECK(job.run(1, late(3, 0.3)).empty());
  CHECK((job.rule.suspects() == std::set{3} && job.rule.is_suspicious()));
  CHECK(!job.rule.latest()[3].is_straggler);
  const auto found = job.run(10, late(3, 0.3));
  REQUIRE(found.size() == 1);
  CHECK((found[0].late_steps > 40 && found[0].late_seconds == doctest::Approx(0.012).epsilon(0.2)));
  CHECK((job.rule.latest()[3].is_straggler && !job.rule.latest()[2].is_straggler));
  CHECK(job.rule.suspects().empty());
  CHECK(job.run(2, kHealthy).empty());
  CHECK(job.run(5, late(3, 0.3)).empty());  // still the same episode
  CHECK(job.run(3, kHealthy).empty());
  CHECK(!job.rule.latest()[3].is_straggler);
  CHECK(job.run(2, late(3, 0.3)).size() == 1);
}

TEST_CASE("a straggler stays one though another rank is later for a window") {
  SimulatedJob job(8);
  job.run(4, late(3, 0.3));
  job.run(1, [](int rank, uint64_t) { return rank == 3 ? 0.3 : rank == 0 ? 0.6 : 0.0; });
  CHECK((job.rule.latest()[3].is_straggler && !job.rule.latest()[0].is_straggler));
}

TEST_CASE("the sentence has rank, host, lateness, frequency and cause") {
  SimulatedJob job(8);
  job.noise = 0;
  auto found = job.run(2, late(5, 0.25));
  REQUIRE(found.size() == 1);
  CHECK(say(found[0]) ==
        "rank 5 on b is 10 ms late in 50 of 50 steps, 20 % of a step; cause: the program itself");
  const LateLine line{"read_shard, loader.py:30", 17, 20};
  CHECK(straggler_sentence(found[0], "", line, {"a", "a", "a", "a", "b", "b"}) ==
        "rank 5 on b is 10 ms late in 50 of 50 steps, 20 % of a step, in 17 of 20 samples in "
        "read_shard, loader.py:30");
}

TEST_CASE("the later one of two ranks is named") {
  SimulatedJob job(2);
  job.noise = 0;
  const auto found = job.run(2, late(1, 0.25));
  REQUIRE(found.size() == 1);
  CHECK(
      say(found[0]) ==
      "rank 1 on a, the later of two, is 10 ms late in 50 of 50 steps, 20 % of a step; cause: the "
      "program itself");
}

TEST_CASE("two ranks may be late at once") {
  SimulatedJob job(16);
  const auto found = job.run(4, [](int rank, uint64_t) {
    return rank == 3 ? 0.3 : rank == 9 ? 0.5 : 0.0;
  });
  REQUIRE(found.size() == 2);
  CHECK((found[0].ranks == std::vector{3} && found[1].ranks == std::vector{9}));
}

TEST_CASE("a host whose ranks are all late is named as a host, also as one of two") {
  for (const int size : {8, 16, 64}) {
    SimulatedJob job(size);
    const auto found = job.run(5, [](int rank, uint64_t) { return rank / 4 == 1 ? 0.3 : 0.0; });
    REQUIRE_MESSAGE(found.size() == 1, size, " ranks: ", found.size());
    CHECK((found[0].kind == Kind::kHost && found[0].ranks == std::vector{4, 5, 6, 7}));
    CHECK(found[0].is_one_of_two == (size == 8));
    const std::string text = say(found[0]);
    CHECK_MESSAGE(text.find(size == 8 ? "ranks 4-7 on b, all ranks of the later of two hosts, are 1"
                                      : "ranks 4-7 on b, all ranks of this host, are 1") == 0,
                  text);
  }
}

TEST_CASE("a checkpoint in every tenth step is no straggler") {
  SimulatedJob job(4);
  const auto found =
      job.run(40, [](int rank, uint64_t step) { return rank == 0 && step % 10 == 3 ? 4.0 : 0.0; });
  REQUIRE(found.size() == 1);
  CHECK((found[0].kind == Kind::kPeriodic && found[0].period == 10));
  const std::string text = straggler_sentence(found[0], "", {}, {"a"});
  CHECK_MESSAGE(text.starts_with("rank 0 on a is 1"), text);
  CHECK_MESSAGE(
      text.find("late in every 10th step, as by a checkpoint or a log") != std::string::npos, text);
}

TEST_CASE("a late rank that is another one in each step has no name") {
  SimulatedJob job(8);
  const auto moving = [](int rank, uint64_t step) {
    return rank == static_cast<int>(step * 5 % 8) ? 1.5 : 0.0;
  };
  CHECK(job.run(3, moving).empty());
  const auto found = job.run(10, moving);
  REQUIRE(found.size() == 1);
  CHECK((found[0].kind == Kind::kMoving && found[0].ranks.empty()));
  CHECK(straggler_sentence(found[0], "", {}, {}).find("each time another one") !=
        std::string::npos);
}

TEST_CASE(
    "ranks that are all slower than before have one sentence without a name, and another phase has "
    "none") {
  SimulatedJob job(8);
  CHECK(job.run(10, kHealthy).empty());
  job.scale = 1.3;
  const auto found = job.run(20, kHealthy);
  REQUIRE(found.size() == 1);
  CHECK((found[0].kind == Kind::kEverybody && found[0].ranks.empty()));
  CHECK(straggler_sentence(found[0], "", {}, {}).find("all ranks are slower than before") == 0);
  job.phase = 8;
  job.scale = 3;
  CHECK(job.run(20, kHealthy).empty());
}

TEST_CASE("steps of less than 20 ms have no stragglers, whatever the lateness") {
  SimulatedJob job(4);
  job.noise = 0;
  job.scale = 0.3;  // a step takes 12 ms
  CHECK(job.run(10, late(1, 0.5)).empty());
  CHECK((job.rule.suspects().empty() && !job.rule.is_suspicious()));
  CHECK(job.rule.latest()[1].late_seconds == doctest::Approx(0.006).epsilon(0.01));
  SimulatedJob longer(4);
  longer.noise = 0;
  longer.scale = 0.3;
  CHECK(longer.run(10, late(1, 0.75)).size() == 1);  // 21 ms with the wait
}

TEST_CASE("the first 100 steps have no stragglers") {
  SimulatedJob job(4);
  job.window.first = 0;
  CHECK(job.run(3, late(1, 0.5)).empty());
  CHECK(job.run(1, late(1, 0.5)).size() == 1);
  SimulatedJob with_checkpoints(4);
  with_checkpoints.window.first = 0;
  const auto found = with_checkpoints.run(
      2, [](int rank, uint64_t step) { return rank == 0 && step % 10 == 3 ? 4.0 : 0.0; });
  CHECK(found.empty());
}

TEST_CASE("no share of a step exceeds 100 %") {
  SimulatedJob job(4);
  job.noise = 0;
  const auto found = job.run(4, late(1, 19));
  REQUIRE(found.size() == 1);
  CHECK(say(found[0]).find("is 760 ms late in 50 of 50 steps, 95 % of a step") !=
        std::string::npos);
  SimulatedJob slower(8);
  slower.run(10, kHealthy);
  slower.scale = 3;
  const auto of_all = slower.run(20, kHealthy);
  REQUIRE(of_all.size() == 1);
  CHECK(say(of_all[0]).find('%') == std::string::npos);
}

}  // namespace hvd::launcher
