// Host copies of device tensors, mixed with device tensors and host tensors.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "runtime/rank_checks.h"

using hvd::cat;
using hvd::MutexLock;
using hvd::Status;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::require_started;
using hvd::test::Work;

namespace {

// Places a tensor: H in host memory, s as a host copy, D on the rank's device, number 10 + rank.
void put(char place, int rank, Work& work) {
  work.submission.device = place == 'H' ? static_cast<int32_t>(HVD_CPU) : 10 + rank;
  work.submission.flags = place == 's' ? HVD_STAGED : 0;
}

size_t batches_on_device(Ranks& ranks, int rank) {
  const MutexLock lock(ranks.world().mutex);
  const auto& devices = ranks.world().devices[rank];
  CHECK(std::ranges::all_of(devices, [&](int32_t device) { return device == 10 + rank; }));
  return devices.size();
}

RanksOptions three_ranks() {
  RanksOptions options;
  options.has_devices = true;
  options.machines = {0, 0, 1};
  options.process_sets = {{0, 2}};
  options.late = std::chrono::microseconds(200);
  return options;
}

}  // namespace

TEST_CASE("a copy runs where the others decide, and work with copies alone in host memory") {
  Ranks ranks(3, three_ranks());
  require_started(ranks);
  // All rounds use the same names, so that the ranks remember earlier places.
  std::vector<std::string> rounds{"sss", "sss", "sDs", "sDs", "DDD", "DDD", "ssD", "Hss",
                                  "HHs", "HHH", "sss", "HsD", "DDs", "DsH", "sHs", "Dss"};
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    std::string& round = rounds.emplace_back();
    for (int rank = 0; rank < 3; ++rank) round += "HsD"[random() % 3];
  }
  ranks.each([&](int rank) {
    size_t on_device = 0;
    for (const std::string& round : rounds) {
      CAPTURE(round);
      const bool has_device = round.find('D') != std::string::npos;
      const bool is_mixed = has_device && round.find('H') != std::string::npos;
      // Two tensors that share a batch, and one alone.
      std::deque<Work> works;
      works.emplace_back(HVD_ALLREDUCE, "a", std::vector<float>{1, 2}, HVD_FLOAT32);
      works.emplace_back(HVD_ALLREDUCE, "b", std::vector<float>{3}, HVD_FLOAT32);
      works.emplace_back(HVD_BROADCAST, "c", std::vector<int32_t>{rank + 7}, HVD_INT32);
      for (Work& work : works) put(round[static_cast<size_t>(rank)], rank, work);
      for (Work& work : works) REQUIRE(work.submit(ranks[rank]).ok());
      for (Work& work : works) {
        const Status status = work.finish(ranks[rank]);
        CHECK_MESSAGE(status.ok() == !is_mixed, status.message());
        if (is_mixed) {
          CHECK(status.message().find("Mismatched CPU/GPU device selections") != std::string::npos);
        }
      }
      if (!is_mixed) {
        CHECK(works[0].result<float>() == std::vector<float>{3, 6});
        CHECK(works[1].result<float>() == std::vector<float>{9});
        CHECK(works[2].result<int32_t>() == std::vector<int32_t>{7});
      }
      const size_t now = batches_on_device(ranks, rank);
      CHECK((now > on_device) == (has_device && !is_mixed));
      on_device = now;
    }
  });
}

TEST_CASE("copies and tensors on devices of overlapping sets start in one order") {
  Ranks ranks(3, three_ranks());
  require_started(ranks);
  ranks.each([&](int rank) {
    for (int i = 0; i < 30; ++i) {
      std::deque<Work> works;
      for (const int32_t set : {0, 1}) {
        if (set == 1 && rank == 1) continue;
        Work& work =
            works.emplace_back(HVD_ALLREDUCE, cat("w", i), std::vector<float>{1}, HVD_FLOAT32);
        work.submission.process_set = set;
        put((i + rank + set) % 3 == 0 ? 'D' : 's', rank, work);
      }
      for (Work& work : works) REQUIRE(work.submit(ranks[rank]).ok());
      for (Work& work : works) {
        const Status status = work.finish(ranks[rank]);
        CHECK_MESSAGE(status.ok(), status.message());
        CHECK(work.result<float>()[0] == (work.submission.process_set == 0 ? 3 : 2));
      }
    }
  });
}

TEST_CASE("a copy names its device, and flags that do not exist are refused") {
  RanksOptions options;
  options.has_devices = true;
  Ranks ranks(1, options);
  Work work(HVD_ALLREDUCE, "a", std::vector<float>{1}, HVD_FLOAT32);
  work.submission.flags = 1 << 20;
  CHECK(work.submit(ranks[0]).message().find("flags has the value 1048576") != std::string::npos);
  work.submission.flags = HVD_STAGED;
  CHECK(work.run(ranks[0]).ok());  // a tensor in host memory needs no copy
}
