#include "launcher/observe/views/operation_waits.h"

#include <doctest/doctest.h>

#include <chrono>

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;
using Ranks = std::vector<OperationWaits::Rank>;

// Ranks of one generation, each with a number of announced operations.
Ranks ranks_with(const std::vector<uint64_t>& operations) {
  Ranks ranks;
  for (const uint64_t count : operations) {
    const auto rank = static_cast<int>(ranks.size());
    ranks.push_back({.number = rank,
                     .rank = rank,
                     .start = "s/",
                     .world_size = static_cast<int32_t>(operations.size()),
                     .operations = count});
  }
  return ranks;
}

const Clock::time_point kNow{std::chrono::hours(1)};

}  // namespace

TEST_CASE("a rank that announces nothing new waits for the ranks behind it") {
  OperationWaits waits;
  waits.take(ranks_with({6, 5, 6}), kNow);
  CHECK(waits.of(0).empty());  // the rank may have announced the last operation just now
  CHECK(waits.needs_another());
  waits.take(ranks_with({6, 5, 6}), kNow + milliseconds(200));
  CHECK_FALSE(waits.needs_another());
  CHECK((waits.of(0) == "rank 1" && waits.of(2) == "rank 1" && waits.of(1).empty()));
  waits.take(ranks_with({7, 6, 6}), kNow + milliseconds(1200));
  CHECK((waits.of(0).empty() && waits.of(2).empty()));
  CHECK_FALSE(waits.needs_another());
  waits.take(ranks_with({7, 6, 7}), kNow + milliseconds(9000));
  CHECK(waits.of(0) == "rank 1");
  CHECK(waits.needs_another());
  waits.take(ranks_with({7, 7, 7}), kNow + milliseconds(9200));
  CHECK(waits.of(0).empty());
}

TEST_CASE("ranks of other worlds, of other starts and ranks that have joined are not compared") {
  for (const int change : {0, 1, 2, 3, 4}) {
    OperationWaits waits;
    Ranks ranks = ranks_with({6, 5});
    if (change == 1) ranks[1].start = "t/";
    if (change == 2) ranks[0].start = ranks[1].start = "/";
    if (change == 3) ranks[1].joins = 1;
    if (change == 4) ranks[1].world_size = 1;
    waits.take(ranks, kNow);
    waits.take(ranks, kNow + milliseconds(200));
    CHECK(waits.of(0) == (change == 0 ? "rank 1" : ""));
  }
  OperationWaits waits;
  waits.take(ranks_with({600, 600}), kNow);
  waits.take(ranks_with({600, 3}), kNow + milliseconds(200));  // rank 1 has restarted
  CHECK(waits.of(0).empty());
}

TEST_CASE("each rank waits for all that are behind it") {
  OperationWaits waits;
  std::vector<uint64_t> operations(1000, 9);
  for (size_t rank = 0; rank < operations.size(); rank += 2) operations[rank] = 8;
  operations[1] = 7;
  for (int look = 0; look < 2; ++look)
    waits.take(ranks_with(operations), kNow + look * milliseconds(200));
  CHECK(waits.of(0) == "rank 1");
  CHECK(waits.of(3) == "ranks 0-2, 4, 6 and 496 more");
  CHECK(waits.of(1).empty());
}

}  // namespace hvd::launcher
