#include "launcher/elastic/membership.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "base/check.h"

namespace hvd::launcher {
namespace {

// The members of the next generation on one host.
struct HostPlan {
  const UsableHost* usable = nullptr;
  std::vector<StartedProcess> survivors = {};  // in the order of their slots
  int kept = 0;                                // number of survivors that stay
  int size = 0;                                // number of members
};

using HostPlans = std::vector<HostPlan>;

bool is_survivor(const MembershipChange& change, const Member& member) {
  return !change.ended.contains(member.incarnation) && !change.leaving.contains(member.incarnation);
}

// Returns the hosts in the order of their ranks, with their survivors.
HostPlans order_hosts(const MembershipChange& change) {
  std::map<std::string_view, const UsableHost*> usable;
  for (const UsableHost& host : change.usable) usable.emplace(host.host.name, &host);
  HostPlans hosts;
  std::map<std::string_view, size_t> index;
  for (const Member& member : change.previous.members) {
    const auto found = usable.find(member.host);
    if (found == usable.end() || !is_survivor(change, member)) continue;
    const auto [place, is_first] = index.emplace(member.host, hosts.size());
    if (is_first) hosts.push_back({.usable = found->second});
    hosts[place->second].survivors.push_back({member.slot, member.incarnation});
  }
  for (const UsableHost& host : change.usable) {
    if (usable.at(host.host.name) != &host || index.contains(host.host.name)) continue;
    hosts.push_back({.usable = &host});
  }
  for (HostPlan& host : hosts) {
    std::ranges::stable_sort(host.survivors, {}, &StartedProcess::slot);
  }
  return hosts;
}

// Gives slots first to survivors, then to started processes; in both steps, to the oldest host first.
void share_slots(HostPlans& hosts, int places) {
  for (HostPlan& host : hosts) {
    const auto survivors = static_cast<int>(host.survivors.size());
    host.kept = std::min({host.usable->host.slots, survivors, places});
    host.size = host.kept;
    places -= host.kept;
  }
  for (HostPlan& host : hosts) {
    const int more = std::min(host.usable->host.slots - host.kept, places);
    host.size += more;
    places -= more;
  }
}

// The slots of one host during their assignment. An empty slot has no incarnation.
class Slots {
 public:
  explicit Slots(int size) : slots_(static_cast<size_t>(size)) {}

  // Places as many of the processes as fit. A process gets its own slot if this is free, else the lowest free slot.
  void place(std::span<const StartedProcess> processes, bool is_new) {
    std::vector<Incarnation> displaced;
    for (const StartedProcess& process : processes) {
      const bool is_there = process.slot >= 0 && process.slot < std::ssize(slots_);
      if (is_there && !at(process.slot).incarnation) {
        at(process.slot) = {process.incarnation, is_new};
      } else {
        displaced.push_back(process.incarnation);
      }
    }
    auto next = displaced.begin();
    for (Slot& slot : slots_) {
      if (next == displaced.end()) break;
      if (!slot.incarnation) slot = {*next++, is_new};
    }
  }

  // If the first slot is free, moves the process of the lowest used slot to it.
  void fill_first() {
    const auto used =
        std::ranges::find_if(slots_, [](const Slot& slot) { return slot.incarnation.has_value(); });
    if (used != slots_.end()) std::swap(slots_.front(), *used);
  }

  void append_to(std::vector<Member>& members, const std::string& host) const {
    for (const Slot& slot : slots_) {
      HVD_CHECK(slot.incarnation);
      members.push_back({.host = host,
                         .slot = static_cast<int>(&slot - slots_.data()),
                         .incarnation = *slot.incarnation,
                         .is_new = slot.is_new});
    }
  }

 private:
  struct Slot {
    std::optional<Incarnation> incarnation;
    bool is_new = false;
  };
  Slot& at(int slot) { return slots_[static_cast<size_t>(slot)]; }

  std::vector<Slot> slots_;
};

Generation generation_of(const MembershipChange& change, const HostPlans& hosts) {
  Generation generation;
  generation.number = change.number;
  for (const HostPlan& host : hosts) {
    if (host.size == 0) continue;
    Slots slots(host.size);
    slots.place(std::span(host.survivors).first(static_cast<size_t>(host.kept)), false);
    if (generation.members.empty()) slots.fill_first();
    slots.place(host.usable->started, true);
    slots.append_to(generation.members, host.usable->host.name);
  }
  std::set<Incarnation> staying;
  for (const Member& member : generation.members) staying.insert(member.incarnation);
  for (const Member& member : change.previous.members) {
    if (change.ended.contains(member.incarnation) || staying.contains(member.incarnation)) continue;
    generation.removed.push_back(member);
  }
  return generation;
}

// Plans a change in which all ranks with the state would leave. One of these ranks stays until other ranks have the
// state.
MembershipPlan hand_over(MembershipChange change) {
  int slots = 0;
  for (const UsableHost& host : change.usable) slots += host.host.slots;
  if (slots < change.min || slots == 0) return TooFew{slots, change.min};
  const Member holder = *std::find_if(
      change.previous.members.begin(), change.previous.members.end(),
      [&](const Member& member) { return change.leaving.contains(member.incarnation); });
  change.leaving.erase(holder.incarnation);
  const auto place =
      std::find_if(change.usable.begin(), change.usable.end(),
                   [&](const UsableHost& usable) { return usable.host.name == holder.host; });
  if (place != change.usable.end())
    ++place->host.slots;
  else
    change.usable.push_back({.host = {holder.host, "", 1}});
  if (change.max) change.max = std::max(*change.max, 2);
  return plan_membership(change);
}

// Returns the host, with as many slots as it has usable processes, and its processes without the state.
UsableHost usable_host(const HostTable& hosts, const Host& host,
                       const std::function<bool(const RankRun& process)>& takes) {
  UsableHost usable{.host = host};
  int count = 0;
  for (const RankRun& process : hosts.ranks()) {
    if (process.host().name() != host.name || process.host().is_leaving()) continue;
    if (process.place().is_removed || !takes(process)) continue;
    ++count;
    if (!process.is_member() || !process.has_met()) {
      usable.started.push_back({process.slot().local_rank, process.number()});
    }
  }
  usable.host.slots = std::min(host.slots, count);
  return usable;
}

}  // namespace

bool Generation::has_new() const { return std::ranges::any_of(members, &Member::is_new); }

MembershipPlan plan_membership(const MembershipChange& change) {
  const bool had_members = !change.previous.members.empty();
  const bool has_state = std::ranges::any_of(
      change.previous.members, [&](const Member& member) { return is_survivor(change, member); });
  if (had_members && !has_state) return NoSurvivor{};
  HostPlans hosts = order_hosts(change);
  int slots = 0;
  for (const HostPlan& host : hosts) slots += host.usable->host.slots;
  if (slots < change.min || slots == 0) return TooFew{slots, change.min};
  // The hosts have enough slots, but none has a survivor. Only a job with too few slots waits for the survivors' hosts.
  if (had_members && hosts.front().survivors.empty()) return NoSurvivor{};
  share_slots(hosts, std::min(slots, change.max.value_or(slots)));
  return generation_of(change, hosts);
}

MembershipPlan plan_generation(const HostTable& hosts, const std::optional<Generation>& current,
                               const HostPool& pool, const GenerationRules& rules,
                               const std::function<bool(const RankRun& process)>& takes) {
  MembershipChange change;
  change.min = rules.least;
  change.max = rules.most;
  change.number = rules.number;
  if (current) change.previous = *current;
  // Members of a generation whose ranks have never met have no state.
  std::erase_if(change.previous.members, [&hosts](const Member& member) {
    const RankRun& process = hosts.rank(member.incarnation);
    return !process.is_gone() && !process.has_met();
  });
  for (const Member& member : change.previous.members) {
    const RankRun& process = hosts.rank(member.incarnation);
    if (process.is_gone())
      change.ended.insert(process.number());
    else if (process.place().is_removed || process.host().is_leaving())
      change.leaving.insert(process.number());
  }
  for (const Host& host : pool.offered()) {
    UsableHost usable = usable_host(hosts, host, takes);
    if (usable.host.slots > 0) change.usable.push_back(std::move(usable));
  }
  const bool all_leave = !change.leaving.empty() &&
                         std::all_of(change.previous.members.begin(), change.previous.members.end(),
                                     [&](const Member& member) {
                                       return change.ended.contains(member.incarnation) ||
                                              change.leaving.contains(member.incarnation);
                                     });
  return all_leave ? hand_over(std::move(change)) : plan_membership(change);
}

rendezvous::Generation record_of(const Generation& generation) {
  rendezvous::Generation record;
  record.number = generation.number;
  for (const Member& member : generation.members) {
    record.members.push_back({member.incarnation, member.is_new, member.host});
  }
  return record;
}

std::map<int, rendezvous::PlaceAnswer> answers_by_process(const Generation& generation) {
  std::map<int, rendezvous::PlaceAnswer> answers;
  int rank = 0;
  for (const rendezvous::PlaceAnswer& answer : answers_of(record_of(generation))) {
    answers.emplace(generation.members[rank++].incarnation, answer);
  }
  return answers;
}

bool JoiningPlan::is_prepared() const {
  return generation_ && std::ranges::all_of(generation_->members, [this](const Member& one) {
           const RankRun& process = hosts_.rank(one.incarnation);
           return process.is_member() || process.place_state() == PlaceState::kAsking;
         });
}

std::set<int> JoiningPlan::newcomers() const {
  std::set<int> processes;
  if (!generation_) return processes;
  for (const Member& member : generation_->members) {
    const RankRun& process = hosts_.rank(member.incarnation);
    if (!process.is_gone() && !process.is_member()) processes.insert(process.number());
  }
  return processes;
}

std::vector<std::pair<RankRun*, rendezvous::PlaceAnswer>> JoiningPlan::answer_places(
    Clock::time_point now) {
  std::vector<std::pair<RankRun*, rendezvous::PlaceAnswer>> answers;
  if (!generation_) return answers;
  for (auto& [number, answer] : answers_by_process(*generation_)) {
    RankRun& process = hosts_.rank(number);
    if (process.is_member() || process.place_state() != PlaceState::kAsking) continue;
    PlaceRecord& place = process.place();
    if (place.provisional || place.takes_any_place) continue;
    process.to(PlaceState::kPreparing);
    place.provisional = answer.place;
    place.since = now;
    answers.emplace_back(
        &process, rendezvous::PlaceAnswer{
                      .place = answer.place, .has_new_members = true, .is_provisional = true});
  }
  return answers;
}

std::optional<Generation> with_newcomers(MembershipPlan plan) {
  auto* const generation = std::get_if<Generation>(&plan);
  if (generation == nullptr || !generation->has_new()) return std::nullopt;
  return std::move(*generation);
}

std::vector<RankRun*> misplaced(HostTable& hosts, const std::set<int>& processes,
                                const Generation& generation) {
  const std::map<int, rendezvous::PlaceAnswer> answers = answers_by_process(generation);
  std::vector<RankRun*> found;
  for (const int number : processes) {
    RankRun& process = hosts.rank(number);
    const PlaceRecord& record = process.place();
    if (!record.provisional || record.takes_any_place) continue;
    if (const auto answer = answers.find(number); answer != answers.end()) {
      rendezvous::Place place = answer->second.place;
      place.generation = record.provisional->generation;
      if (place == *record.provisional) continue;
    }
    found.push_back(&process);
  }
  return found;
}

}  // namespace hvd::launcher
