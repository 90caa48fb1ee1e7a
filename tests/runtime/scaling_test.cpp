// Tests the cost of one cached allreduce as the number of ranks grows: messages per rank, and
// rounds.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "runtime/negotiation/negotiator.h"
#include "runtime/ranks.h"

using hvd::Status;
using hvd::runtime::place_in_tree;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::Work;

namespace {

// Returns the machine of each rank, eight ranks per machine.
std::vector<int32_t> machines_of(int size) {
  std::vector<int32_t> machines(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) machines[static_cast<size_t>(rank)] = rank / 8;
  return machines;
}

int log2_of(int size) { return std::bit_width(static_cast<unsigned>(size)) - 1; }

// Returns the hops from the farthest rank to the root.
int depth_of(const std::vector<int32_t>& machines) {
  std::vector<int32_t> members(machines.size());
  std::iota(members.begin(), members.end(), 0);
  int deepest = 0;
  std::vector<int> depth(machines.size(), 0);
  for (const int32_t rank : members) {
    // A parent is lower than its children.
    const int32_t parent = place_in_tree(rank, members, machines).parent;
    if (parent >= 0) depth[static_cast<size_t>(rank)] = depth[static_cast<size_t>(parent)] + 1;
    deepest = std::max(deepest, depth[static_cast<size_t>(rank)]);
  }
  return deepest;
}

void reduce(Ranks& ranks, int times) {
  ranks.each([&](int rank) {
    for (int i = 0; i < times; ++i) {
      Work work(HVD_ALLREDUCE, "w", std::vector<float>{1}, HVD_FLOAT32);
      const Status status = work.run(ranks[rank]);
      REQUIRE_MESSAGE(status.ok(), status.message());
      REQUIRE(work.result<float>()[0] == static_cast<float>(ranks.size()));
    }
  });
}

}  // namespace

TEST_CASE("rounds grow with the logarithm of the ranks") {
  for (int size = 2; size <= 1024; size *= 2) {
    CHECK(depth_of(machines_of(size)) <= log2_of(size));
    CHECK(depth_of(std::vector<int32_t>(static_cast<size_t>(size), 0)) <= 1 + log2_of(size) / 3);
  }
}

TEST_CASE("messages of each rank grow with the logarithm of the ranks, up to 512 of them") {
  for (const int size : {2, 16, 128, 512}) {
    RanksOptions options;
    options.machines = machines_of(size);
    options.start_seconds = 60;
    Ranks ranks(size, options);
    for (const Status& status : ranks.start_status) REQUIRE_MESSAGE(status.ok(), status.message());
    reduce(ranks, 3);
    std::vector<uint64_t> before;
    for (int rank = 0; rank < size; ++rank) before.push_back(ranks[rank].counts().messages_sent);
    constexpr int kTimes = 2;
    reduce(ranks, kTimes);
    uint64_t most = 0;
    uint64_t all = 0;
    for (int rank = 0; rank < size; ++rank) {
      const uint64_t sent = ranks[rank].counts().messages_sent - before[static_cast<size_t>(rank)];
      most = std::max(most, sent);
      all += sent;
    }
    // Each rank except the root sends one message up and receives one.
    CHECK(all == static_cast<uint64_t>(kTimes * 2 * (size - 1)));
    CHECK(most <= static_cast<uint64_t>(kTimes * (8 + log2_of(size))));
  }
}
