#include "launcher/elastic/membership.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace hvd::launcher {
namespace {

// The next generation's members on one host.
struct HostPlan {
  const UsableHost* usable = nullptr;
  std::vector<StartedProcess> survivors = {};  // by slot
  int kept = 0;                                // survivors that stay
  int size = 0;                                // members
};

using HostPlans = std::vector<HostPlan>;

bool is_survivor(const MembershipChange& change, const Member& member) {
  return !change.ended.contains(member.incarnation) && !change.leaving.contains(member.incarnation);
}

// Hosts in the order of their ranks, with their survivors.
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

// Gives slots to survivors first, then to processes to be started; in both, the oldest host is first.
void share_slots(HostPlans& hosts, int64_t places) {
  for (HostPlan& host : hosts) {
    const int64_t survivors = std::ssize(host.survivors);
    host.kept = static_cast<int>(std::min({int64_t{host.usable->host.slots}, survivors, places}));
    host.size = host.kept;
    places -= host.kept;
  }
  for (HostPlan& host : hosts) {
    const auto more =
        static_cast<int>(std::min(int64_t{host.usable->host.slots - host.kept}, places));
    host.size += more;
    places -= more;
  }
}

// The slots of one host while they are filled. An empty one has no incarnation.
class Slots {
 public:
  explicit Slots(int size) : slots_(static_cast<size_t>(size)) {}

  // As many of the processes as there is room for: each in its own slot if that is free, else in the
  // lowest free one.
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

  // If the first slot is free, its process becomes that of the lowest slot that is not.
  void fill_first() {
    const auto used =
        std::ranges::find_if(slots_, [](const Slot& slot) { return slot.incarnation.has_value(); });
    if (used != slots_.end()) std::swap(slots_.front(), *used);
  }

  void fill(Incarnation& next) {
    for (Slot& slot : slots_) {
      if (!slot.incarnation) slot = {next++, true};
    }
  }

  void append_to(std::vector<Member>& members, const std::string& host) const {
    for (const Slot& slot : slots_) {
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
  Incarnation next = change.next_incarnation;
  std::vector<Host> filled;
  for (const HostPlan& host : hosts) {
    if (host.size == 0) continue;
    Slots slots(host.size);
    slots.place(std::span(host.survivors).first(static_cast<size_t>(host.kept)), false);
    if (filled.empty()) slots.fill_first();
    slots.place(host.usable->started, true);
    slots.fill(next);
    slots.append_to(generation.members, host.usable->host.name);
    filled.push_back(host.usable->host);
    filled.back().slots = host.size;
  }
  auto plan = plan_slots(filled, std::nullopt);
  HVD_CHECK(plan.ok());
  generation.plan = *std::move(plan);
  std::set<Incarnation> staying;
  for (const Member& member : generation.members) staying.insert(member.incarnation);
  for (const Member& member : change.previous.members) {
    if (change.ended.contains(member.incarnation) || staying.contains(member.incarnation)) continue;
    generation.removed.push_back(member);
  }
  return generation;
}

bool is_same_assignment(const Generation& one, const Generation& other) {
  return std::ranges::equal(one.members, other.members, [](const Member& a, const Member& b) {
    return a.host == b.host && a.slot == b.slot && a.incarnation == b.incarnation;
  });
}

}  // namespace

bool Generation::has_new() const { return std::ranges::any_of(members, &Member::is_new); }

MembershipPlan plan_membership(const MembershipChange& change) {
  const bool had_members = !change.previous.members.empty();
  const bool has_state = std::ranges::any_of(
      change.previous.members, [&](const Member& member) { return is_survivor(change, member); });
  if (had_members && !has_state) return NoSurvivor{};
  HostPlans hosts = order_hosts(change);
  int64_t slots = 0;
  for (const HostPlan& host : hosts) slots += host.usable->host.slots;
  if (slots < change.min || slots == 0) return TooFew{static_cast<int>(slots), change.min};
  // The hosts may come back that have the survivors only while there are too few slots.
  if (had_members && hosts.front().survivors.empty()) return NoSurvivor{};
  share_slots(hosts, std::min(slots, int64_t{change.max.value_or(kMaxSlots)}));
  Generation next = generation_of(change, hosts);
  if (had_members && !change.is_needed && is_same_assignment(next, change.previous)) {
    return Unchanged{};
  }
  return next;
}

}  // namespace hvd::launcher
