#include "launcher/elastic/process_counts.h"

#include <algorithm>
#include <functional>
#include <set>

namespace hvd::launcher {
namespace {

int count_live(const HostTable& hosts, const std::function<bool(const RankRun&)>& is_one) {
  return static_cast<int>(std::ranges::count_if(
      hosts.ranks(), [&](const RankRun& rank) { return !rank.is_gone() && is_one(rank); }));
}

}  // namespace

int live_processes(const HostTable& hosts) {
  return count_live(hosts, [](const RankRun&) { return true; });
}

int live_processes(const HostTable& hosts, const std::string& host) {
  return count_live(hosts, [&host](const RankRun& rank) {
    return !rank.place().is_removed && rank.host().name() == host;
  });
}

int staying_processes(const HostTable& hosts) {
  return count_live(hosts, [](const RankRun& rank) { return !rank.host().is_leaving(); });
}

int live_members(const HostTable& hosts) {
  return count_live(hosts, [](const RankRun& rank) { return rank.is_member(); });
}

int staying_members(const HostTable& hosts) {
  return count_live(hosts, [](const RankRun& rank) {
    return rank.is_member() && !rank.place().is_removed && !rank.host().is_leaving();
  });
}

int members_of(const HostTable& hosts, const std::string& host) {
  return count_live(hosts, [&host](const RankRun& rank) {
    return rank.is_member() && rank.host().name() == host;
  });
}

bool has_ending_member(const HostTable& hosts) {
  return std::ranges::any_of(hosts.members(), [](const RankRun* rank) {
    const HostRun& host = rank->host();
    const bool ends = host.state() == HostState::kEnding || rank->state() == RankState::kEnding;
    return ends && !host.is_over() && !rank->is_over();
  });
}

bool has_survivor(const HostTable& hosts) {
  return std::ranges::any_of(
      hosts.members(), [](const RankRun* rank) { return !rank->is_gone() && rank->has_met(); });
}

bool all_have_asked(const HostTable& hosts) {
  return std::ranges::none_of(hosts.ranks(), [&hosts](const RankRun& rank) {
    return rank.place_state() == PlaceState::kMember || (!hosts.has_members() && rank.is_coming());
  });
}

std::vector<Slot> places_on(const HostTable& hosts, const std::string& name, int count) {
  std::set<int> used;
  for (const RankRun& rank : hosts.ranks()) {
    if (!rank.is_gone() && rank.host().name() == name) used.insert(rank.slot().local_rank);
  }
  std::vector<Slot> places;
  const int all = live_processes(hosts, name) + count;
  int slot = 0;
  for (int number = 0; number < count; ++number, ++slot) {
    while (used.contains(slot)) ++slot;
    places.push_back({.rank = hosts.size() + number,
                      .host = static_cast<int>(hosts.hosts().size()),
                      .local_rank = slot,
                      .local_size = all,
                      .cross_rank = 0,
                      .cross_size = 1});
  }
  return places;
}

}  // namespace hvd::launcher
