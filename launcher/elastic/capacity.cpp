#include "launcher/elastic/capacity.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/text.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {
namespace {

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

// An agent that joined by itself starts no further processes.
int Capacity::usable(const Host& host) const {
  if (pool_.is_excluded_for_ever(host.name)) return 0;
  const int live = table_.live_processes(host.name);
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
  const auto is_starting = [](const auto& one) {
    return one.second.is_coming() || one.second.phase == ProcessPhase::kHeld;
  };
  if (std::any_of(table_.processes.begin(), table_.processes.end(), is_starting)) return true;
  return std::any_of(pool_.offered().begin(), pool_.offered().end(), [this](const Host& host) {
    return !pool_.is_excluded_for_ever(host.name) && table_.live_processes(host.name) < host.slots;
  });
}

std::string Capacity::awaited_hosts(Clock::time_point now) const {
  std::vector<std::string> places;
  for (const Host& host : pool_.offered()) {
    if (pool_.is_excluded_for_ever(host.name)) continue;
    const bool is_starting =
        std::any_of(table_.processes.begin(), table_.processes.end(), [&](const auto& one) {
          const bool starts =
              !table_.is_member(one.first) && one.second.phase != ProcessPhase::kGone;
          return starts && table_.hosts.at(one.second.host).name() == host.name;
        });
    const Clock::time_point when = pool_.usable_from(host.name);
    if (is_starting) {
      places.push_back(cat("host ", host.name, " (starting)"));
    } else if (when > now && table_.live_processes(host.name) < host.slots) {
      places.push_back(cat("host ", host.name, " (tried again in ",
                           std::chrono::ceil<std::chrono::seconds>(when - now).count(), " s)"));
    }
  }
  if (limits_.finds_hosts() || places.empty()) {
    places.emplace_back(further_slots(limits_.hosts));
  }
  return join(places, ", ");
}

bool Capacity::has_place_for(const JobProcess& process) const {
  const JobHost& state = table_.hosts.at(process.host);
  const bool is_ready =
      process.phase == ProcessPhase::kAsking || process.phase == ProcessPhase::kHeld;
  if (!is_ready || state.use != HostUse::kUsed) return false;
  if (limits_.most && table_.staying_members() >= *limits_.most) return false;
  return std::any_of(pool_.offered().begin(), pool_.offered().end(), [&](const Host& host) {
    return host.name == state.name() && table_.members_of(host.name) < host.slots;
  });
}

bool Capacity::has_state_without(const std::set<std::string>& hosts) const {
  if (!table_.current) return false;
  const auto stays = [&](const Member& member) {
    const int process = member.incarnation;
    return !hosts.contains(member.host) && table_.is_live(process) && table_.has_met(process) &&
           !table_.processes.at(process).is_removed &&
           table_.host_of(process).use != HostUse::kLeaving;
  };
  return std::any_of(table_.current->members.begin(), table_.current->members.end(), stays);
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
