#include "launcher/observe/rules/hang_rule.h"

#include <doctest/doctest.h>

#include <functional>

namespace hvd::launcher {
namespace {

using Kind = HangRule::Finding::Kind;

RankPlace waiting(const std::string& operation = "all_reduce") {
  return {.is_collective = 1,
          .library = "torch.distributed (gloo)",
          .operation = operation,
          .function = "all_reduce",
          .line = "train.py:88",
          .frames = 1};
}

RankPlace reading() { return {.function = "load_shard", .line = "loader.py:30", .frames = 2}; }

// Two ranks, checked every quarter of a second with a limit of 2 s; rank 0 waits, and rank 1 reads.
struct Job {
  explicit Job(double limit = 2, bool may_stop = false) : rule(limit, may_stop) {
    for (int rank = 0; rank < 2; ++rank) signs[rank].rank = rank;
    places = {{0, waiting()}, {1, reading()}};
  }

  // Checks for `seconds`, and calls `change` before each check.
  void pass(
      double seconds, const std::function<void()>& change = [] {}) {
    for (double end = elapsed + seconds; elapsed < end; elapsed += rule.interval()) {
      now += std::chrono::milliseconds(static_cast<int64_t>(1000 * rule.interval()));
      change();
      if (!rule.look(signs, now)) continue;
      ++questions;
      if (auto found = rule.judge(places, has_ended, now)) findings.push_back(*std::move(found));
    }
  }

  HangRule rule;
  HangRule::Signs signs;
  HangRule::Places places;
  bool has_ended = false;
  HangRule::Time now = HangRule::Time() + std::chrono::hours(1);
  double elapsed = 0;
  int questions = 0;
  std::vector<HangRule::Finding> findings;
};

}  // namespace

TEST_CASE("a rank waits in a collective and none moves: one hang, at the limit") {
  Job job;
  job.pass(2);
  CHECK(job.findings.empty());
  job.pass(0.75);
  REQUIRE(job.findings.size() == 1);
  CHECK(job.findings[0].kind == Kind::kHang);
  CHECK(job.findings[0].seconds >= 2);
  CHECK(job.questions == 3);
  job.pass(600);
  CHECK(job.findings.size() == 1);
  CHECK(job.questions == 3);
}

TEST_CASE("each sign of life alone keeps a job from a hang") {
  const std::vector<std::function<void(Job&)>> signs = {
      [](Job& job) { job.signs[1].other_microseconds += 100'000; },
      [](Job& job) { job.signs[1].bytes += 20, job.signs[1].calls += 1; },
      [](Job& job) { job.signs[1].bytes += 800, job.signs[1].calls += 100; },
      [](Job& job) { job.signs[1].storage_bytes += 1; },
      [](Job& job) { job.signs[1].other_delay_microseconds += 200'000; },
      [](Job& job) { job.signs[1].socket_bytes += 1000; },
      [](Job& job) { ++job.signs[1].processes; },
      [](Job& job) { job.rule.moved(1); },
      [](Job& job) { job.signs[1].is_excused = 1; },
      [](Job& job) { job.signs[1].is_hidden = 1; },
      [](Job& job) { ++job.places[1].frames; },
      [](Job& job) { job.places[1].is_excused = 1; },
      [](Job& job) { job.signs[1].main_microseconds += 100'000; },
      [](Job& job) { job.rule.forget(); },
      [](Job& job) { job.now += std::chrono::seconds(10); },  // the launcher was suspended
      [](Job& job) { job.places.erase(1); },
      [](Job& job) { job.places[0].is_collective = 0; }};
  for (size_t i = 0; i < signs.size(); ++i) {
    CAPTURE(i);
    Job job;
    job.pass(18, [&] { signs[i](job); });
    CHECK(job.findings.empty());
  }
}

TEST_CASE("a keep-alive, a spinning wait and a moment of work are no move") {
  Job job;
  job.places[0].library = "MPI";
  job.pass(4, [&] {
    job.signs[0].main_microseconds += 250'000;
    job.signs[1].socket_bytes += 20;
    job.signs[1].bytes += 16;
    job.signs[1].calls += 3;
    job.signs[1].other_microseconds += 4000;
    job.signs[1].other_delay_microseconds += 50'000;
    job.signs[1].main_microseconds += 4000;
  });
  CHECK(job.findings.size() == 1);
}

TEST_CASE("a program without a collective is asked for its places ever more rarely") {
  Job job;
  job.places[0] = reading();
  job.pass(200);
  CHECK(job.findings.empty());
  CHECK(job.questions < 16);
}

TEST_CASE("after a move, another hang is another finding") {
  Job job;
  job.pass(4);
  job.pass(0.25, [&] { ++job.signs[0].bytes; });
  job.pass(4);
  CHECK(job.findings.size() == 2);
}

TEST_CASE("ranks wait for one that works: one note, at ten times the limit") {
  Job job;
  const auto work = [&] { job.signs[1].other_microseconds += 200'000; };
  job.pass(19, work);
  CHECK(job.questions == 0);
  job.pass(30, work);
  REQUIRE(job.findings.size() == 1);
  CHECK(job.findings[0].kind == Kind::kWait);
  CHECK(job.findings[0].waiting == std::vector<int>{0});
  CHECK(hang_sentence(job.findings[0], {}, {"a", "b"}) ==
        "rank 0 on a has waited for 20 s in torch.distributed (gloo): all_reduce, train.py:88, "
        "while others work: rank 1 on b is in load_shard, loader.py:30");
}

TEST_CASE("a later wait is another note, though another rank has not moved since the first") {
  Job job;
  job.signs[2].rank = 2;
  job.places[2] = reading();
  const auto work = [&] { job.signs[1].other_microseconds += 200'000; };
  job.pass(60, work);
  CHECK(job.findings.size() == 1);
  job.pass(0.25, [&] { work(), job.rule.moved(0); });
  job.pass(19, work);
  CHECK(job.findings.size() == 1);
  job.pass(30, work);
  CHECK(job.findings.size() == 2);
}

TEST_CASE("a rank whose main thread computes is one for which others wait") {
  Job job;
  const auto compute = [&] { job.signs[1].main_microseconds += 100'000; };
  job.pass(19, compute);
  CHECK(job.findings.empty());
  job.pass(100, compute);
  REQUIRE(job.findings.size() == 1);
  CHECK(job.findings[0].kind == Kind::kWait);
  CHECK(job.findings[0].waiting == std::vector<int>{0});
  CHECK(job.findings[0].seconds < 25);
  CHECK(job.questions < 20);
  Job in_backward;  // the rank may also wait in this function
  in_backward.places[1] = waiting("the reduction of gradients in backward()");
  in_backward.pass(30, [&] { in_backward.signs[1].main_microseconds += 100'000; });
  REQUIRE(in_backward.findings.size() == 1);
  CHECK(in_backward.findings[0].waiting == std::vector<int>{0});
}

TEST_CASE("a note has the ranks that came to the collective a little later") {
  Job job;
  job.signs[2].rank = 2;
  job.places[2] = waiting();
  const auto work = [&] { job.signs[1].other_microseconds += 200'000; };
  job.pass(1, [&] { work(), job.rule.moved(2); });
  job.pass(60, work);
  REQUIRE(job.findings.size() == 1);
  CHECK(job.findings[0].waiting == std::vector<int>{0, 2});
}

TEST_CASE("a hang stops a job after two limits, unless all ranks are in one operation") {
  Job outside(2, true);
  outside.pass(3.5);
  CHECK(outside.findings.size() == 1);
  outside.pass(10);
  REQUIRE(outside.findings.size() == 2);
  CHECK(outside.findings[1].kind == Kind::kStop);
  CHECK(outside.findings[1].seconds >= 4);
  Job together(2, true);
  together.places[1] = waiting();
  together.pass(60);
  CHECK(together.findings.size() == 1);
  Job ended(2, true);
  ended.places[1] = waiting();
  ended.has_ended = true;
  ended.pass(10);
  CHECK(ended.findings.size() == 2);
}

TEST_CASE(
    "ranks without stacks may hang: one sentence that says why, no stop and no note of a wait") {
  const RankPlace hidden = {.is_collective = 1,
                            .state = "sleeping in futex_do_wait (python3 train.py)",
                            .frames = 3,
                            .no_stack = "it needs py-spy\x1b"};
  Job job(2, true);
  job.places = {{0, hidden}, {1, hidden}};
  job.places[1].state = "sleeping in hrtimer_nanosleep (python3 train.py)";
  job.places[1].is_collective = 0;
  job.pass(60);
  REQUIRE(job.findings.size() == 1);
  CHECK(job.findings[0].kind == Kind::kHang);
  CHECK(hang_sentence(job.findings[0], {}, {"a", "b"}) ==
        "no rank has moved for 2 s: rank 0 on a is sleeping in futex_do_wait (python3 train.py); "
        "rank 1 on b is sleeping in hrtimer_nanosleep (python3 train.py)");
  CHECK(!is_certain(job.findings[0]));
  CHECK(missing_stacks(job.findings[0], {"a", "b"}) ==
        "no Python stack of ranks 0-1 on a, b: it needs py-spy\\x1b");
  Job with_a_stack(2, true);
  with_a_stack.places[1] = hidden;
  with_a_stack.pass(60);
  REQUIRE(with_a_stack.findings.size() == 1);
  CHECK(is_certain(with_a_stack.findings[0]));
  Job waiting_for_one;
  waiting_for_one.places[0] = hidden;
  waiting_for_one.pass(60, [&] { waiting_for_one.signs[1].other_microseconds += 200'000; });
  CHECK(waiting_for_one.findings.empty());
}

TEST_CASE("a sentence groups ranks by line, and escapes what agents say") {
  HangRule::Finding finding;
  finding.seconds = 120;
  for (int rank = 0; rank < 7; ++rank) finding.places[rank] = waiting();
  finding.places[7] = reading();
  finding.places[8] = {.state = "sleeping in nfs_wait (x\x1b)"};
  const std::vector<std::string> hosts = {"a", "a", "a", "a", "a", "a", "a", "b", "b", "b"};
  CHECK(hang_sentence(finding, {{9, "exit code 0"}}, hosts) ==
        "no rank has moved for 120 s: ranks 0-6 on a wait in torch.distributed (gloo): "
        "all_reduce, train.py:88; rank 7 on b is in load_shard, loader.py:30; rank 8 on b is "
        "sleeping in nfs_wait (x\\x1b); rank 9 on b has ended (exit code 0)");
  CHECK(missing_stacks(finding, hosts).empty());
  finding.places = {{0, waiting()}, {1, waiting()}};
  for (auto& [rank, place] : finding.places) place.library = "torch.distributed (NCCL)";
  CHECK(hang_sentence(finding, {}, hosts) ==
        "no rank has moved for 120 s: ranks 0-1 on a wait in torch.distributed (NCCL): "
        "all_reduce, train.py:88; a long computation on the GPU looks the same");
}

}  // namespace hvd::launcher
