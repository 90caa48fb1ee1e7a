#include "launcher/plan/slot_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/text.h"

namespace hvd::launcher {
namespace {

SlotPlan plan_of(const std::vector<Host>& hosts, std::optional<int> num_proc = {}) {
  auto plan = plan_slots(hosts, num_proc);
  REQUIRE_MESSAGE(plan.ok(), plan.status().message());
  return *std::move(plan);
}

}  // namespace

TEST_CASE("ranks fill the hosts in their order") {
  const SlotPlan plan = plan_of({{"a", "", 2}, {"b", "", 1}});
  REQUIRE(plan.size() == 3);
  const auto check = [&](int rank, int host, int local, int local_size, int cross, int crosses) {
    const Slot& slot = plan.slots[static_cast<size_t>(rank)];
    CHECK(slot.rank == rank);
    CHECK(slot.host == host);
    CHECK(slot.local_rank == local);
    CHECK(slot.local_size == local_size);
    CHECK(slot.cross_rank == cross);
    CHECK(slot.cross_size == crosses);
  };
  check(0, 0, 0, 2, 0, 2);
  check(1, 0, 1, 2, 0, 1);
  check(2, 1, 0, 1, 1, 2);
}

TEST_CASE("-np caps the job, and hosts without a rank are not in it") {
  const SlotPlan plan = plan_of({{"a", "", 4}, {"b", "", 4}, {"c", "", 4}}, 5);
  CHECK(plan.size() == 5);
  REQUIRE(plan.hosts.size() == 2);
  CHECK(plan.slots[3].local_size == 4);
  CHECK(plan.slots[4].local_size == 1);
  CHECK(plan.slots[4].cross_rank == 1);
  CHECK(plan.slots[0].cross_size == 2);
  CHECK(plan.slots[1].cross_size == 1);
}

TEST_CASE("more ranks than slots are divided evenly where a scheduler gives more") {
  const Host a{"a", "", 1, 0, 4, "1 task, 4 GPUs"}, b{"b", "", 1, 0, 2, "1 task"},
      c{"c", "", 1, 0, 4, ""};
  const auto ranks = [&](int size) {
    std::vector<int> counts(3);
    for (const Slot& slot : plan_of({a, b, c}, size).slots)
      ++counts[static_cast<size_t>(slot.host)];
    return counts;
  };
  CHECK(ranks(2) == std::vector<int>{1, 1, 0});
  CHECK(ranks(3) == std::vector<int>{1, 1, 1});
  CHECK(ranks(6) == std::vector<int>{2, 2, 2});
  CHECK(ranks(7) == std::vector<int>{3, 2, 2});
  CHECK(ranks(10) == std::vector<int>{4, 2, 4});
  CHECK(plan_of({a, b}).size() == 2);
  const std::string error = plan_slots({a, b}, 7).status().message();
  CHECK_MESSAGE(
      error.find("7 ranks are more than the 6 slots there are; lower -np, request more (sbatch "
                 "--ntasks-per-node=N), or write --slots-per-host N:") == 0,
      error);
  CHECK_MESSAGE(error.find("a         4  (Slurm: 1 task, 4 GPUs)") != std::string::npos, error);
}

TEST_CASE("more ranks than slots is an error that shows the hosts") {
  CHECK(plan_slots({{"a", "", 4}, {"host-b", "", 16}}, 21).status().message() ==
        "21 ranks are more than the 20 slots there are; lower -np or give the hosts more slots:\n"
        "  host    slots\n"
        "  a           4\n"
        "  host-b     16");
  CHECK(plan_slots({{"a", "", 1}}, 2)
            .status()
            .message()
            .starts_with("2 ranks are more than the 1 slot there is; lower -np or give the hosts "
                         "more slots, as by "
                         "--slots-per-host 2:\n"));
  CHECK(
      plan_slots({{"a", "", 1}, {"b", "", 1}}, 5).status().message().find("--slots-per-host 3:") !=
      std::string::npos);
}

TEST_CASE("any plan is numbered without gap or overlap") {
  std::mt19937 random(20);
  for (int round = 0; round < 300; ++round) {
    std::vector<Host> hosts(1 + random() % 9);
    int total = 0;
    for (size_t i = 0; i < hosts.size(); ++i) {
      hosts[i] = {cat("h", i), "", static_cast<int>(1 + random() % 7)};
      total += hosts[i].slots;
    }
    const int size = 1 + static_cast<int>(random() % static_cast<unsigned>(total));
    const SlotPlan plan = plan_of(hosts, size);
    REQUIRE(plan.size() == size);
    std::map<int, std::vector<int>> local_ranks, cross_ranks;  // indices: host, local rank
    for (int rank = 0; rank < size; ++rank) {
      const Slot& slot = plan.slots[static_cast<size_t>(rank)];
      CHECK(slot.rank == rank);
      if (rank > 0) CHECK(slot.host >= plan.slots[static_cast<size_t>(rank - 1)].host);
      local_ranks[slot.host].push_back(slot.local_rank);
      cross_ranks[slot.local_rank].push_back(slot.cross_rank);
      CHECK(slot.local_size <= plan.hosts[static_cast<size_t>(slot.host)].slots);
    }
    CHECK(local_ranks.size() == plan.hosts.size());
    const auto is_counted = [](const std::vector<int>& numbers, int count) {
      for (int i = 0; i < count; ++i) {
        if (numbers[static_cast<size_t>(i)] != i) return false;
      }
      return static_cast<int>(numbers.size()) == count;
    };
    for (const Slot& slot : plan.slots) {
      CHECK(is_counted(local_ranks[slot.host], slot.local_size));
      CHECK(is_counted(cross_ranks[slot.local_rank], slot.cross_size));
    }
  }
}

}  // namespace hvd::launcher
