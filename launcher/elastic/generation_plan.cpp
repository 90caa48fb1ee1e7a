#include "launcher/elastic/generation_plan.h"

#include <algorithm>
#include <utility>

namespace hvd::launcher {
namespace {

// Changes a plan in which all ranks with the state would leave: one of them stays until other ranks have the state, and
// all leaving ranks wait for these ranks.
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

// Returns the host with the number of its slots that have processes, and the processes that have no state yet.
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

}  // namespace hvd::launcher
