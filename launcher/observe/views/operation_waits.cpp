#include "launcher/observe/views/operation_waits.h"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "launcher/plan/rank_set.h"

namespace hvd::launcher {
namespace {

// If the previous look was less than this time ago, no second look is needed.
constexpr std::chrono::seconds kFollows{3};

auto world_of(const OperationWaits::Rank& rank) {
  return std::tie(rank.start, rank.world_size, rank.joins);
}

// Returns false for a rank that has joined (hvd.join), because it announces nothing and delays no rank. Also returns
// false for a rank whose world has no name, because it cannot be compared with other ranks.
bool is_comparable(const OperationWaits::Rank& rank) {
  return rank.joins % 2 == 0 && !rank.start.empty() && !rank.start.starts_with('/');
}

}  // namespace

void OperationWaits::take(const std::vector<Rank>& ranks, Clock::time_point now) {
  const bool follows = now - std::exchange(looked_at_, now) < kFollows;
  before_ = std::exchange(last_, {});
  needs_another_ = false;
  waits_.clear();
  for (const Rank& rank : ranks) last_[rank.number] = rank;
  std::map<std::tuple<std::string, int32_t, uint64_t>, std::vector<const Rank*>> worlds;
  for (const auto& [number, rank] : last_) {
    if (is_comparable(rank)) worlds[world_of(rank)].push_back(&rank);
  }
  for (auto& [world, members] : worlds) take_world(std::move(members));
  if (follows) needs_another_ = false;
}

// Returns the rank's data at the previous look; null if it was in another world, or unknown.
const OperationWaits::Rank* OperationWaits::before(const Rank& rank) const {
  const auto found = before_.find(rank.number);
  return found == before_.end() || world_of(found->second) != world_of(rank) ? nullptr
                                                                             : &found->second;
}

// A rank waits if its count has not changed since the previous look, and the counts of other ranks are smaller.
void OperationWaits::take_world(std::vector<const Rank*> ranks) {
  std::ranges::stable_sort(ranks, {}, &Rank::operations);
  if (ranks.empty() || ranks.front()->operations == ranks.back()->operations) return;
  needs_another_ = true;
  std::vector<int> behind;
  for (size_t begin = 0; begin < ranks.size();) {
    const uint64_t operations = ranks[begin]->operations;
    size_t end = begin;
    while (end < ranks.size() && ranks[end]->operations == operations) ++end;
    std::string name;
    for (size_t i = begin; i < end && !behind.empty(); ++i) {
      const Rank* const earlier = before(*ranks[i]);
      if (earlier == nullptr || earlier->operations != operations) continue;
      if (name.empty()) name = name_of_ranks(behind);
      waits_[ranks[i]->rank] = name;
    }
    for (; begin < end; ++begin) {
      const Rank* const earlier = before(*ranks[begin]);
      // A rank whose count decreases has initialised Horovod again, in another world.
      if (earlier != nullptr && earlier->operations <= operations)
        behind.push_back(ranks[begin]->rank);
    }
  }
}

std::string OperationWaits::of(int rank) const {
  const auto found = waits_.find(rank);
  return found == waits_.end() ? "" : found->second;
}

}  // namespace hvd::launcher
