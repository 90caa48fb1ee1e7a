// Join of in-process runtimes: some ranks have no more input while other ranks continue.
#include <doctest/doctest.h>

#include <deque>
#include <random>

#include "runtime/rank_checks.h"

using hvd::Code;
using hvd::Deadline;
using hvd::Status;
using hvd::runtime::Runtime;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::require_started;
using hvd::test::Work;

namespace {

// Returns the last rank that joined, or -1 on failure.
int32_t join(Runtime& runtime, int32_t set = 0) {
  Work work(HVD_JOIN, "", std::vector<float>{}, HVD_FLOAT32);
  work.submission.name = nullptr;
  work.submission.process_set = set;
  REQUIRE(work.submit(runtime).ok());
  const auto status = runtime.wait(work.handle, Deadline::after_seconds(200));
  REQUIRE(status);
  if (!status->ok()) return -1;
  hvd_output output{};
  REQUIRE(runtime.output(work.handle, 0, &output).ok());
  REQUIRE(runtime.release(work.handle).ok());
  return output.last_joined_rank;
}

double reduce(Runtime& runtime, const std::string& name, double value, int32_t op = HVD_SUM,
              size_t count = 3) {
  Work work(HVD_ALLREDUCE, name, std::vector<double>(count, value), HVD_FLOAT64);
  work.submission.reduce_op = op;
  const Status status = work.run(runtime);
  REQUIRE_MESSAGE(status.ok(), status.message());
  return work.result<double>().back();
}

}  // namespace

TEST_CASE("the others go on with what changes nothing of the joined ranks, cached or not") {
  FOR_ALL_LINKS(options);
  SUBCASE("over memory links of several machines") { options.machines = {0, 0, 1, 1}; }
  constexpr int kSize = 4;
  Ranks ranks(kSize, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    for (int round = 0; round < 3; ++round) {
      // Rank r has r steps more than rank 0; by the second round, some names are cached.
      for (int step = 0; step < 3 + rank; ++step) {
        const int first = step < 3 ? 0 : step - 2;  // the lowest rank that still works
        double sum = 0;
        for (int r = first; r < kSize; ++r) sum += r + 1;
        CHECK(reduce(ranks[rank], "sum", rank + 1) == sum);
        CHECK(reduce(ranks[rank], "big", rank + 1, HVD_SUM, 40000) == sum);
        CHECK(reduce(ranks[rank], "average", rank + 1, HVD_AVERAGE) == sum / kSize);
        CHECK(reduce(ranks[rank], "min", rank + 1, HVD_MIN) == first + 1);
        CHECK(reduce(ranks[rank], "max", -rank - 1, HVD_MAX) == -first - 1);
        CHECK(reduce(ranks[rank], "product", 2, HVD_PRODUCT) == 1 << (kSize - first));
        Work barrier(HVD_BARRIER, "", std::vector<float>{}, HVD_FLOAT32);
        CHECK(barrier.run(ranks[rank]).ok());
      }
      CHECK(join(ranks[rank]) == kSize - 1);
    }
    CHECK(reduce(ranks[rank], "after", 1) == kSize);
  });
}

TEST_CASE("operations that need every rank fail, with who has joined, and the runtime goes on") {
  FOR_ALL_LINKS(options);
  Ranks ranks(3, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    for (int round = 0; round < 3; ++round) {
      if (round > 0) {
        // Two agreements, so the name is cached.
        Work cached(HVD_BROADCAST, "broadcast", std::vector<double>(3, rank), HVD_FLOAT64);
        CHECK(cached.run(ranks[rank]).ok());
      }
      if (rank != 1) {
        // Wait until rank 1 has joined: the sum then lacks rank 1's contribution.
        CHECK(reduce(ranks[rank], "probe", 1) == 2);
        for (const auto& [op, name] : {std::pair{HVD_ALLGATHER, "gather"},
                                       {HVD_ALLTOALL, "exchange"},
                                       {HVD_BROADCAST, "broadcast"},
                                       {HVD_REDUCESCATTER, "scatter"}}) {
          Work work(op, name, std::vector<double>(3, rank), HVD_FLOAT64);
          const Status status = work.run(ranks[rank]);
          CHECK(status.code() == Code::kInvalidArgument);
          CHECK_MESSAGE(
              status.message().find("not supported with Join at this time: rank 1 joined") !=
                  std::string::npos,
              status.message());
        }
      }
      const int32_t last = join(ranks[rank]);
      CHECK((last == 0 || last == 2));
    }
  });
}

TEST_CASE("an operation from before the join counts, and one from after it waits") {
  Ranks ranks(3);
  require_started(ranks);
  ranks.each([&](int rank) {
    for (int round = 0; round < 5; ++round) {
      Work before(HVD_ALLREDUCE, "before", std::vector<double>{1}, HVD_FLOAT64);
      REQUIRE(before.submit(ranks[rank]).ok());
      Work join_work(HVD_JOIN, "", std::vector<double>{}, HVD_FLOAT64);
      join_work.submission.name = nullptr;
      REQUIRE(join_work.submit(ranks[rank]).ok());
      Work after(HVD_ALLREDUCE, "after", std::vector<double>{1}, HVD_FLOAT64);
      REQUIRE(after.submit(ranks[rank]).ok());
      CHECK(before.finish(ranks[rank]).ok());
      CHECK(join_work.finish(ranks[rank]).ok());
      CHECK(after.finish(ranks[rank]).ok());
      CHECK(before.result<double>()[0] == 3);
      CHECK(after.result<double>()[0] == 3);
    }
  });
}

TEST_CASE("counts of announcements are of all ranks alone, and alike on each after a join") {
  FOR_ALL_LINKS(options);
  options.process_sets = {{0, 1}};
  std::vector<hvd::RankCounters> counters(3);
  options.counters = &counters;
  {
    Ranks ranks(3, options);
    require_started(ranks);
    ranks.each([&](int rank) {
      const hvd::Announcements& announced = counters[static_cast<size_t>(rank)].announced;
      const uint64_t before = announced.operations;  // all ranks have registered the set
      if (rank < 2) {
        Work of_set(HVD_ALLREDUCE, "of set", std::vector<double>{1}, HVD_FLOAT64);
        of_set.submission.process_set = 1;
        CHECK(of_set.run(ranks[rank]).ok());
      }
      for (int step = 0; step < 2 + rank; ++step) reduce(ranks[rank], "all", 1);
      CHECK(announced.operations - before == static_cast<uint64_t>(2 + rank));
      join(ranks[rank]);
      reduce(ranks[rank], "after", 1);
    });
  }
  for (const hvd::RankCounters& rank : counters) {
    CHECK(rank.announced.operations == 1);
    CHECK(rank.announced.joins == 2);
  }
}

TEST_CASE("a set is joined by itself") {
  RanksOptions options;
  options.process_sets = {{0, 2}};
  Ranks ranks(3, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    Work all(HVD_ALLREDUCE, "all", std::vector<double>{1}, HVD_FLOAT64);
    if (rank == 2) REQUIRE(all.submit(ranks[rank]).ok());
    if (rank != 1) {
      const int32_t last = join(ranks[rank], 1);
      CHECK((last == 0 || last == 2));
    }
    if (rank != 2) REQUIRE(all.submit(ranks[rank]).ok());
    CHECK(all.finish(ranks[rank]).ok());
    CHECK(all.result<double>()[0] == 3);
  });
}

TEST_CASE("random steps and joins come out right") {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    constexpr int kSize = 6;
    RanksOptions options;
    options.machines = {0, 0, 1, 1, 2, 2};
    Ranks ranks(kSize, options);
    require_started(ranks);
    ranks.each([&](int rank) {
      std::mt19937 common(seed);
      for (int round = 0; round < 4; ++round) {
        int steps[kSize];
        int most = 0;
        for (int& count : steps) most = std::max(most, count = static_cast<int>(common() % 8));
        std::deque<Work> works;
        std::vector<double> sums;
        for (int step = 0; step < steps[rank]; ++step) {
          double sum = 0;
          for (int r = 0; r < kSize; ++r) sum += step < steps[r] ? r + 1 : 0;
          for (int i = 0; i < 4; ++i) {
            works.emplace_back(HVD_ALLREDUCE, std::to_string(step) + "/" + std::to_string(i),
                               std::vector<double>(5, rank + 1), HVD_FLOAT64);
            REQUIRE(works.back().submit(ranks[rank]).ok());
            sums.push_back(sum);
          }
        }
        const int32_t last = join(ranks[rank]);
        CHECK(last >= 0);
        for (size_t i = 0; i < works.size(); ++i) {
          const Status status = works[i].finish(ranks[rank]);
          REQUIRE_MESSAGE(status.ok(), status.message());
          CHECK(works[i].result<double>()[4] == sums[i]);
        }
      }
    });
  }
}
