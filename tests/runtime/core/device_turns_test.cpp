// Batches on devices of several process sets of in-process runtimes.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <string>
#include <vector>

#include "base/text.h"
#include "horovod/plugin_op.h"
#include "runtime/rank_checks.h"

using hvd::cat;
using hvd::MutexLock;
using hvd::Status;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::require_started;
using hvd::test::Work;

namespace {

const std::vector<std::vector<int32_t>> kSets{{0, 1, 2, 3}, {1, 2, 3}, {2, 3},
                                              {0, 1, 2},    {1, 3},    {3}};

std::deque<Work> works_on_devices(int rank, int round) {
  std::deque<Work> works;
  for (size_t i = 0; i < kSets.size(); ++i) {
    // Each rank begins with a different set.
    const size_t set = (i + static_cast<size_t>(rank)) % kSets.size();
    if (std::ranges::find(kSets[set], rank) == kSets[set].end()) continue;
    Work& work =
        works.emplace_back(HVD_ALLREDUCE, cat("w", round), std::vector<float>{1}, HVD_FLOAT32);
    work.submission.process_set = static_cast<int32_t>(set);
    work.submission.device = rank;
  }
  return works;
}

}  // namespace

TEST_CASE("batches on devices of overlapping sets start in the same order on all ranks") {
  for (unsigned seed = 0; seed < 5; ++seed) {
    CAPTURE(seed);
    RanksOptions options;
    options.has_devices = true;
    options.process_sets = {kSets.begin() + 1, kSets.end()};
    options.machines = {0, 0, 1, 1};
    options.late = std::chrono::microseconds(300);
    options.late_seed = seed;
    Ranks ranks(4, options);
    require_started(ranks);
    ranks.each([&](int rank) {
      for (int round = 0; round < 20; ++round) {
        auto works = works_on_devices(rank, round);
        for (Work& work : works) REQUIRE(work.submit(ranks[rank]).ok());
        for (Work& work : works) {
          const Status status = work.finish(ranks[rank]);
          CHECK_MESSAGE(status.ok(), status.message());
          const auto set = static_cast<size_t>(work.submission.process_set);
          CHECK(work.result<float>()[0] == static_cast<float>(kSets[set].size()));
        }
      }
    });
    const MutexLock lock(ranks.world().mutex);
    auto& batches = ranks.world().device_batches;
    for (int a = 0; a < 4; ++a) {
      for (int b = a + 1; b < 4; ++b) {
        const auto shared = [](const std::vector<std::string>& all,
                               const std::vector<std::string>& other) {
          std::vector<std::string> both;
          std::ranges::copy_if(all, std::back_inserter(both), [&](const std::string& one) {
            return std::ranges::find(other, one) != other.end();
          });
          return both;
        };
        CAPTURE(a);
        CAPTURE(b);
        const auto on_a = shared(batches[a], batches[b]), on_b = shared(batches[b], batches[a]);
        CHECK(on_a.size() >= 20);
        CHECK(on_a == on_b);
      }
    }
  }
}

TEST_CASE("rank 0 gives turns to sets without it, while it has no work") {
  RanksOptions options;
  options.has_devices = true;
  options.process_sets = {{1, 2}};
  options.machines = {0, 1, 2};
  Ranks ranks(3, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    for (int i = 0; rank > 0 && i < 20; ++i) {
      Work work(HVD_ALLREDUCE, cat("w", i), std::vector<float>{1}, HVD_FLOAT32);
      work.submission.process_set = 1;
      work.submission.device = rank;
      const Status status = work.run(ranks[rank]);
      CHECK_MESSAGE(status.ok(), status.message());
    }
  });
  const MutexLock lock(ranks.world().mutex);
  CHECK(ranks.world().device_batches[1].size() == 20);
}

TEST_CASE("a rank that has joined uses the device of its earlier tensors, or names none") {
  for (const bool has_earlier : {false, true}) {
    RanksOptions options;
    options.has_devices = true;
    Ranks ranks(2, options);
    require_started(ranks);
    ranks.each([&](int rank) {
      const auto reduce = [&](const char* name) {
        Work work(HVD_ALLREDUCE, name, std::vector<float>{1}, HVD_FLOAT32);
        work.submission.device = rank == 0 ? 3 : 7;
        const Status status = work.run(ranks[rank]);
        CHECK_MESSAGE(status.ok(), status.message());
      };
      if (has_earlier) reduce("both");
      if (rank == 0) reduce("of rank 0");
      Work join(HVD_JOIN, "", std::vector<float>{}, HVD_FLOAT32);
      join.submission.name = nullptr;
      CHECK(join.run(ranks[rank]).ok());
    });
    const MutexLock lock(ranks.world().mutex);
    const std::vector<int32_t> own =
        has_earlier ? std::vector<int32_t>{7, 7} : std::vector<int32_t>{HVD_UNKNOWN_DEVICE};
    CHECK(ranks.world().devices[1] == own);
    CHECK(ranks.world().devices[0].back() == 3);
  }
}

TEST_CASE("batches that no plugin runs are refused, and later ones run") {
  for (const int32_t device : {int32_t{0}, static_cast<int32_t>(HVD_CPU)}) {
    RanksOptions options;
    options.has_devices = true;
    options.process_sets = {{0, 1}};
    Ranks ranks(3, options);
    require_started(ranks);
    ranks.each([&](int rank) {
      for (const int32_t set : {0, 1}) {
        if (set == 1 && rank == 2) continue;
        const auto submit = [&](std::deque<Work>& works, const std::string& name, int32_t op) {
          Work& work = works.emplace_back(HVD_ALLREDUCE, name, std::vector<float>{1}, HVD_FLOAT32);
          work.submission.process_set = set;
          work.submission.device = device;
          work.submission.reduce_op = op;
          REQUIRE(work.submit(ranks[rank]).ok());
        };
        for (int round = 0; round < 3; ++round) {
          std::deque<Work> works;
          submit(works, "before", HVD_SUM);
          submit(works, "refused", HVD_ADASUM);  // the memory links lack Adasum
          submit(works, "after", HVD_SUM);
          for (const size_t good : {size_t{0}, size_t{2}}) {
            const Status status = works[good].finish(ranks[rank]);
            REQUIRE_MESSAGE(status.ok(), status.message());
            CHECK(works[good].result<float>()[0] == static_cast<float>(3 - set));
          }
          const Status refused = works[1].finish(ranks[rank]);
          CHECK(refused.code() == hvd::Code::kUnimplemented);
          CHECK(refused.message().find("no operation plugin here runs allreduce") == 0);
        }
      }
    });
  }
}

TEST_CASE("a job with one process set sends no message for the order of batches on devices") {
  const auto messages_of = [](int32_t device) {
    RanksOptions options;
    options.has_devices = true;
    Ranks ranks(2, options);
    require_started(ranks);
    uint64_t sent = 0;
    ranks.each([&](int rank) {
      const uint64_t before = ranks.world().sent.load();
      for (int i = 0; i < 10; ++i) {
        Work work(HVD_ALLREDUCE, cat("w", i), std::vector<float>{1}, HVD_FLOAT32);
        work.submission.device = device;
        const Status status = work.run(ranks[rank]);
        CHECK_MESSAGE(status.ok(), status.message());
      }
      if (rank == 0) sent = ranks.world().sent.load() - before;
    });
    return sent;
  };
  // Each batch needs one announcement and one plan.
  CHECK(messages_of(0) <= 20 + 2);
}
