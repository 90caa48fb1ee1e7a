// Speculative allreduce between two ranks on two machines: the bookkeeping alone, and the results
// of runtimes of this process, whether both ranks speculated on the same operation or not.
#include "runtime/negotiation/speculation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "base/text.h"
#include "runtime/ranks.h"

using hvd::Bytes;
using hvd::ByteView;
using hvd::Status;
using hvd::runtime::Announcement;
using hvd::runtime::Speculation;
using hvd::runtime::TentativePlan;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::Work;

namespace {

const Bytes kData(32, std::byte{7});

std::vector<uint32_t> announced(Speculation& speculation, const std::vector<uint32_t>& ids) {
  for (const uint32_t id : ids) speculation.announced(id);
  const auto fresh = speculation.take_fresh();
  return {fresh.begin(), fresh.end()};
}

TentativePlan tentative_plan_of(const std::vector<uint32_t>& ids, uint64_t after) {
  return {0, 0, after, ids, {kData}};
}

Announcement announcement_of(const std::vector<uint32_t>& ids, bool has_data) {
  Announcement announcement;
  announcement.ids = ids;
  if (has_data) announcement.eager_data = {kData};
  return announcement;
}

}  // namespace

TEST_CASE("a tentative plan that crosses the announcement of the same names matches") {
  Speculation child(true);
  REQUIRE(announced(child, {5, 3}) == std::vector<uint32_t>{3, 5});
  CHECK(child.announce(std::vector<uint32_t>{3, 5}).empty());
  SUBCASE("alone") {}
  SUBCASE("also after announcements without eager data") { CHECK(child.announce({}).empty()); }
  CHECK(child.matches(tentative_plan_of({3, 5}, 0)));
  CHECK(!child.is_undecided());
}

TEST_CASE("a tentative plan that comes first matches the next announcement or none") {
  Speculation child(true);
  CHECK(!child.matches(tentative_plan_of({3}, 0)));
  const std::vector<uint32_t> same{3};
  CHECK(child.matches_tentative_plan(same));
  SUBCASE("a batch of the same names") {
    const ByteView theirs = child.announce(same);
    CHECK(std::ranges::equal(theirs, kData));
  }
  SUBCASE("a batch of other names") {
    CHECK(child.announce(std::vector<uint32_t>{4}).empty());
    CHECK(!child.matches_tentative_plan(same));
    CHECK(child.announce(same).empty());
  }
  SUBCASE("a batch of the same names without eager data") {
    CHECK(child.announce({}).empty());
    CHECK(child.announce(same).empty());
  }
}

TEST_CASE("a tentative plan after an announcement of others is void") {
  Speculation child(true);
  child.announce(std::vector<uint32_t>{4});
  CHECK(!child.matches(tentative_plan_of({3}, 0)));
  CHECK(child.announce(std::vector<uint32_t>{3}).empty());
}

TEST_CASE("the next announcement decides the root's tentative plan") {
  Speculation root(true);
  root.sent(std::vector<uint32_t>{3, 5});
  REQUIRE(root.is_undecided());
  SUBCASE("which matches it") { CHECK(root.receive(announcement_of({3, 5}, true))); }
  SUBCASE("which has no eager data") { CHECK(!root.receive(announcement_of({3, 5}, false))); }
  SUBCASE("which is of others") { CHECK(!root.receive(announcement_of({3}, true))); }
  CHECK(!root.is_undecided());
  CHECK(!root.receive(announcement_of({3, 5}, true)));
  CHECK(root.announcements() == 2);
}

TEST_CASE("an empty announcement ends the speculation on both ranks") {
  Speculation child(true), root(true);
  root.sent(std::vector<uint32_t>{3});
  CHECK(!child.matches(tentative_plan_of({3}, 0)));
  child.close();
  CHECK(!child.matches_tentative_plan(std::vector<uint32_t>{3}));
  CHECK(!root.receive(announcement_of({}, false)));
  CHECK(!root.is_undecided());
  for (Speculation* speculation : {&child, &root}) {
    CHECK(speculation->is_closed());
    CHECK(!speculation->should_speculate());
  }
}

TEST_CASE("an announced batch is expected to be next while nothing older waits for a plan") {
  Speculation speculation(true);
  CHECK(announced(speculation, {1, 2}).size() == 2);
  CHECK(announced(speculation, {3}).empty());
  for (int i = 0; i < 3; ++i) speculation.planned();
  CHECK(announced(speculation, {4}).size() == 1);
  speculation.planned();
  CHECK(announced(speculation, {4, 0}).empty());
}

TEST_CASE("a rank whose eager data is wasted again and again pauses for longer and longer") {
  Speculation root(true);
  int sent = 0;
  for (int i = 0; i < 200; ++i) {
    if (!root.should_speculate()) continue;
    ++sent;
    root.sent(std::vector<uint32_t>{1});
    root.receive(announcement_of({2}, true));
  }
  CHECK(sent > 3);
  CHECK(sent < 20);
  while (!root.should_speculate()) {
  }
  root.sent(std::vector<uint32_t>{1});
  CHECK(root.receive(announcement_of({1}, true)));
  CHECK(root.should_speculate());
}

namespace {

struct Counts {
  uint64_t speculative = 0;
  uint64_t wasted = 0;
  uint64_t messages = 0;
};

Counts counts_of(Ranks& ranks) {
  Counts sum;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const auto counts = ranks[rank].counts();
    sum.speculative += counts.speculative_batches;
    sum.wasted += counts.eager_sends_wasted;
    sum.messages += counts.messages_sent;
  }
  return sum;
}

void require_started(const Ranks& ranks) {
  for (const Status& status : ranks.start_status) REQUIRE_MESSAGE(status.ok(), status.message());
}

void check(Work& work, Ranks& ranks, int rank, double expected) {
  const Status status = work.finish(ranks[rank]);
  REQUIRE_MESSAGE(status.ok(), status.message());
  for (const double value : work.result<double>()) REQUIRE(value == expected);
}

}  // namespace

TEST_CASE("two ranks on two machines run a known allreduce by one message each way") {
  RanksOptions options;
  options.machines = {0, 1};
  Ranks ranks(2, options);
  require_started(ranks);
  constexpr int kSteps = 50;
  const auto run = [&](int times) {
    ranks.each([&](int rank) {
      for (int i = 0; i < times; ++i) {
        Work work(HVD_ALLREDUCE, "w", std::vector<double>(10, i + rank), HVD_FLOAT64);
        REQUIRE(work.submit(ranks[rank]).ok());
        check(work, ranks, rank, 2 * i + 1);
      }
    });
  };
  run(4);
  const Counts before = counts_of(ranks);
  run(kSteps);
  const Counts after = counts_of(ranks);
  CHECK(after.speculative - before.speculative == 2 * kSteps);
  CHECK(after.messages - before.messages == 2 * kSteps);
  CHECK(after.wasted == before.wasted);
}

TEST_CASE("ranks of one machine, and more than two of them, agree as ever") {
  RanksOptions options;
  SUBCASE("one machine") { options.machines = {0, 0}; }
  SUBCASE("three machines") { options.machines = {0, 1, 2}; }
  const int size = static_cast<int>(options.machines.size());
  Ranks ranks(size, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    for (int i = 0; i < 6; ++i) {
      Work work(HVD_ALLREDUCE, "w", std::vector<double>(10, 1), HVD_FLOAT64);
      REQUIRE(work.submit(ranks[rank]).ok());
      check(work, ranks, rank, size);
    }
  });
  CHECK(counts_of(ranks).speculative == 0);
}

namespace {

// Repeated names, several in flight, in a different order on each rank, with waits at different
// points; now and then with another shape, or as an average.
class Steps {
 public:
  Steps(Ranks& ranks, int rank, unsigned seed, int32_t set)
      : ranks_(ranks),
        rank_(rank),
        common_(seed),
        own_(seed * 10 + static_cast<unsigned>(rank)),
        set_(set) {}

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      // Both ranks use the same order and wait at the same points; or one rank waits for each
      // operation, and the other rank, or both, wait for all at once.
      const bool alike = common_() % 3 == 0;
      const bool waits = common_() % 3 == static_cast<unsigned>(rank_);
      std::deque<Work> works;
      std::vector<double> expected;
      std::vector<size_t> order;
      for (const Terms& terms : terms_of_step()) {
        order.push_back(works.size());
        add(terms, &works, &expected);
      }
      if (!alike) std::shuffle(order.begin(), order.end(), own_);
      std::vector<size_t> submitted;
      for (const size_t i : order) {
        REQUIRE(works[i].submit(ranks_[rank_]).ok());
        submitted.push_back(i);
        if (alike ? common_() % 2 == 0 : waits) finish(&works, expected, &submitted);
      }
      finish(&works, expected, &submitted);
    }
  }

 private:
  struct Terms {
    int name;
    size_t count;
    int32_t reduce_op;
  };

  std::vector<Terms> terms_of_step() {
    std::vector<Terms> all;
    const int most = common_() % 2 == 0 ? 1 : 5;
    const int first = static_cast<int>(common_() % 4);
    for (int i = 0; i < most; ++i) {
      const int name = first + i;
      const size_t usual = name % 3 == 0 ? 3000 : 5;
      all.push_back(
          {name, common_() % 30 == 0 ? usual + 1 : usual, name == 7 ? HVD_AVERAGE : HVD_SUM});
    }
    return all;
  }

  void add(const Terms& terms, std::deque<Work>* works, std::vector<double>* expected) {
    const double value = static_cast<double>(common_() % 1000);
    works->emplace_back(HVD_ALLREDUCE, hvd::cat("n", terms.name),
                        std::vector<double>(terms.count, value + rank_), HVD_FLOAT64);
    works->back().submission.process_set = set_;
    works->back().submission.reduce_op = terms.reduce_op;
    expected->push_back(terms.reduce_op == HVD_SUM ? 2 * value + 1 : value + 0.5);
  }

  void finish(std::deque<Work>* works, const std::vector<double>& expected,
              std::vector<size_t>* submitted) {
    for (const size_t i : *submitted) check((*works)[i], ranks_, rank_, expected[i]);
    submitted->clear();
  }

  Ranks& ranks_;
  const int rank_;
  std::mt19937 common_, own_;
  const int32_t set_;
};

}  // namespace

TEST_CASE("results are right whether speculation of two ranks matches or not") {
  Counts sum;
  for (unsigned seed = 1; seed <= 24; ++seed) {
    CAPTURE(seed);
    RanksOptions options;
    // All ranks, or a set of two ranks.
    const int size = seed % 2 == 0 ? 2 : 3;
    options.machines = {0, 1, 1};
    options.machines.resize(static_cast<size_t>(size));
    if (size == 3) options.process_sets = {{0, 1}};
    if (seed % 3 == 0) options.late = std::chrono::microseconds(seed % 2 == 0 ? 1000 : 100);
    options.late_seed = seed;
    const char* thresholds[] = {"0", "134217728", "1000", "134217728"};
    REQUIRE(options.settings.set("fusion_threshold", thresholds[seed % 4]).ok());
    REQUIRE(options.settings.set("cache_capacity", seed % 7 == 0 ? "3" : "1024").ok());
    REQUIRE(options.settings.set("cycle_time", seed % 5 == 0 ? "0.3" : "0").ok());
    Ranks ranks(size, options);
    require_started(ranks);
    ranks.each([&](int rank) {
      if (rank < 2) Steps(ranks, rank, seed, size == 3 ? 1 : 0).run(60);
    });
    const Counts counts = counts_of(ranks);
    sum.speculative += counts.speculative;
    sum.wasted += counts.wasted;
  }
  MESSAGE(sum.speculative, " speculative batches, ", sum.wasted, " times wasted");
  // Both outcomes of speculation occurred often.
  CHECK(sum.speculative > 100);
  CHECK(sum.wasted > 20);
}
