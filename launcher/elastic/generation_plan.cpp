#include "launcher/elastic/generation_plan.h"

#include <algorithm>
#include <utility>

namespace hvd::launcher {
namespace {

// All ranks with the state are to leave. One of them stays until others have the state, and all wait for
// those.
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

// The slots of a host for which there are processes, and the processes that are not yet ranks with the state.
UsableHost usable_host(const ProcessTable& table, const Host& host,
                       const std::function<bool(int process)>& takes) {
  UsableHost usable{.host = host};
  int count = 0;
  for (const auto& [number, process] : table.processes) {
    const JobHost& state = table.hosts.at(process.host);
    if (state.name() != host.name || state.use == HostUse::kLeaving) continue;
    if (process.is_removed || !takes(number)) continue;
    ++count;
    if (!table.is_member(number) || !table.has_met(number)) {
      usable.started.push_back({process.slot, number});
    }
  }
  usable.host.slots = std::min(host.slots, count);
  return usable;
}

}  // namespace

MembershipPlan plan_generation(const ProcessTable& table, const HostPool& pool,
                               const GenerationRules& rules,
                               const std::function<bool(int process)>& takes) {
  MembershipChange change;
  change.min = rules.least;
  change.max = rules.most;
  change.number = rules.number;
  if (table.current) change.previous = *table.current;
  // A member of a generation whose ranks never met has no state.
  std::erase_if(change.previous.members, [&table](const Member& member) {
    const int process = member.incarnation;
    return table.is_live(process) && !table.has_met(process);
  });
  for (const Member& member : change.previous.members) {
    const int process = member.incarnation;
    const JobProcess& one = table.processes.at(process);
    if (!table.is_live(process))
      change.ended.insert(process);
    else if (one.is_removed || table.hosts.at(one.host).use == HostUse::kLeaving)
      change.leaving.insert(process);
  }
  for (const Host& host : pool.offered()) {
    UsableHost usable = usable_host(table, host, takes);
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

}  // namespace hvd::launcher
