#include "launcher/elastic/capacity.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "base/text.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {
namespace {

int count_live(const HostTable& hosts, const std::function<bool(const RankRun&)>& is_one) {
  return static_cast<int>(std::ranges::count_if(
      hosts.ranks(), [&](const RankRun& rank) { return !rank.is_gone() && is_one(rank); }));
}

const char* further_slots(HostSource hosts) {
  switch (hosts) {
    case HostSource::kJoining:
      return "agents that join";
    case HostSource::kScript:
      return "more hosts from the discovery script";
    case HostSource::kNamed:
      break;
  }
  return "free slots of its hosts";
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

// Returns the slots that the job can use now. A host whose agent has joined by itself cannot start further processes.
int Capacity::usable(const Host& host) const {
  if (pool_.is_excluded_for_ever(host.name)) return 0;
  const int live = live_processes(hosts_, host.name);
  return limits_.hosts_join() && live > 0 ? std::min(host.slots, live) : host.slots;
}

int Capacity::offered() const { return offered_without({}); }

int Capacity::offered_without(const std::set<std::string>& hosts) const {
  int slots = 0;
  for (const Host& host : pool_.offered()) {
    if (!hosts.contains(host.name)) slots += usable(host);
  }
  return slots;
}

int Capacity::named() const {
  int slots = 0;
  for (const Host& host : pool_.named()) slots += usable(host);
  return slots;
}

bool Capacity::may_grow() const {
  if (limits_.finds_hosts()) return true;
  const auto is_starting = [](const RankRun& one) {
    return one.is_coming() || one.place_state() == PlaceState::kHeld;
  };
  if (std::ranges::any_of(hosts_.ranks(), is_starting)) return true;
  return std::any_of(pool_.offered().begin(), pool_.offered().end(), [this](const Host& host) {
    return !pool_.is_excluded_for_ever(host.name) && live_processes(hosts_, host.name) < host.slots;
  });
}

std::string Capacity::awaited_hosts(Clock::time_point now) const {
  std::vector<std::string> places;
  for (const Host& host : pool_.offered()) {
    if (pool_.is_excluded_for_ever(host.name)) continue;
    const bool is_starting = std::ranges::any_of(hosts_.ranks(), [&host](const RankRun& one) {
      return !one.is_member() && !one.is_gone() && one.host().name() == host.name;
    });
    const Clock::time_point when = pool_.usable_from(host.name);
    if (is_starting) {
      places.push_back(cat("host ", host.name, " (starting)"));
    } else if (when > now && live_processes(hosts_, host.name) < host.slots) {
      places.push_back(cat("host ", host.name, " (tried again in ",
                           std::chrono::ceil<std::chrono::seconds>(when - now).count(), " s)"));
    }
  }
  if (limits_.finds_hosts() || places.empty()) {
    places.emplace_back(further_slots(limits_.hosts));
  }
  return join(places, ", ");
}

bool Capacity::has_place_for(const RankRun& process) const {
  const PlaceState state = process.place_state();
  const bool is_ready = state == PlaceState::kAsking || state == PlaceState::kHeld;
  if (!is_ready || process.host().use() != HostUse::kUsed) return false;
  if (limits_.most && staying_members(hosts_) >= *limits_.most) return false;
  return std::ranges::any_of(pool_.offered(), [&](const Host& host) {
    return host.name == process.host().name() && members_of(hosts_, host.name) < host.slots;
  });
}

bool Capacity::has_state_without(const std::set<std::string>& hosts) const {
  return std::ranges::any_of(hosts_.members(), [&hosts](const RankRun* rank) {
    const HostRun& host = rank->host();
    return !hosts.contains(host.name()) && !rank->is_gone() && rank->has_met() &&
           !rank->place().is_removed && !host.is_leaving();
  });
}

Status Capacity::may_remove(const std::string& host, int slots, const std::string& what) const {
  int left = 0;
  for (const Host& other : pool_.offered()) {
    const int all = usable(other);
    left += other.name == host ? std::min(all, slots) : all;
  }
  if (left < limits_.least) {
    return failed_precondition(cat("without ", what, ", the hosts of the job have slots for ",
                                   count_of_ranks(left), ", and the job needs at least ",
                                   limits_.least));
  }
  if (has_state_without(slots > 0 ? std::set<std::string>() : std::set{host})) return {};
  return failed_precondition(cat("without ", what, ", no remaining rank has the training state"));
}

}  // namespace hvd::launcher
