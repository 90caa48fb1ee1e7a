#include "launcher/elastic/rank_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "launcher/plan/exit_codes.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {

Status RankChanges::may_change(Time now) {
  if (core_.is_over() || core_.stage == JobStage::kFinishing) {
    return failed_precondition("the job ends");
  }
  if (!core_.table.current) return failed_precondition("the ranks of the job have not started yet");
  if (!core_.may_reset(now)) {
    return failed_precondition("the ranks of the job may not change again (--reset-limit)");
  }
  return {};
}

Result<std::string> RankChanges::resize(int ranks, const ProgramPolicy& policy, Time now) {
  HVD_RETURN_IF_ERROR(may_change(now));
  const int least = core_.limits.least;
  if (ranks < least) {
    return invalid_argument(least == 1
                                ? "the job needs at least 1 rank"
                                : fmt::format("the job needs at least {} ranks (--min-np)", least));
  }
  const int all = core_.capacity.named();
  if (ranks > all && !core_.limits.finds_hosts()) {
    return invalid_argument(
        fmt::format("the hosts of the job have slots for {}", count_of_ranks(all)));
  }
  if (ranks > core_.capacity.offered() && core_.pool.has_removals()) take_removed_back();
  core_.limits.most = core_.history.most = ranks;
  return about_size(ranks, policy, now);
}

// All but the hosts whose agents end: these cannot be kept.
void RankChanges::take_removed_back() {
  core_.pool.take_back([this](const std::string& name) {
    return std::any_of(core_.table.hosts.begin(), core_.table.hosts.end(), [&](const auto& one) {
      const JobHost& host = one.second;
      return host.name() == name && !host.why_it_ends.empty() && host.use != HostUse::kGone;
    });
  });
  for (auto& [number, process] : core_.table.processes) process.is_removed = false;
}

std::string RankChanges::about_size(int ranks, const ProgramPolicy& policy, Time now) const {
  const int members = core_.table.live_members();
  const int slots = core_.capacity.offered();
  if (ranks < members) {
    return fmt::format("the job goes from {} to {} {}", members, count_of_ranks(ranks),
                       policy.when_they_leave("they", now));
  }
  if (ranks == members) {
    return fmt::format("the job has {}, and will get no more", count_of_ranks(ranks));
  }
  if (ranks <= slots) {
    return fmt::format("the job goes from {} to {} ranks {}", members, ranks,
                       policy.when_they_come());
  }
  if (core_.limits.hosts_join()) {
    return fmt::format(
        "the job goes from {} to {} ranks when more hosts join; the present hosts have {} slots",
        members, ranks, slots);
  }
  return fmt::format(
      "the job goes from {} to {} ranks when the discovery script names more hosts; it now names "
      "{} slots",
      members, ranks, slots);
}

Result<std::string> RankChanges::remove_host(const std::string& name, const ProgramPolicy& policy,
                                             Time now) {
  HVD_RETURN_IF_ERROR(may_change(now));
  std::vector<std::string> names;
  for (const Host& host : core_.pool.offered()) names.push_back(host.name);
  const std::string what = fmt::format("host {}", name);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return not_found(
        fmt::format("{} is not one of the hosts that the job uses: {}", what, join(names, ", ")));
  }
  HVD_RETURN_IF_ERROR(core_.capacity.may_remove(name, 0, what));
  const bool has_ranks = core_.table.members_of(name) > 0;
  core_.pool.remove(name, 0);
  if (!has_ranks) {
    return fmt::format("{} is not used by the job; its slots stay empty until {}", what,
                       until_used_again());
  }
  return fmt::format("{} leaves the job {}; its slots stay empty until {}", what,
                     policy.when_they_leave("its ranks", now), until_used_again());
}

// The end of a sentence about a removed host.
std::string RankChanges::until_used_again() const {
  if (core_.limits.hosts_join()) {
    return "horovodrun resize needs them, or another agent joins there";
  }
  if (core_.limits.finds_hosts()) {
    return "horovodrun resize needs them, or the discovery script drops the host and names it "
           "again";
  }
  return "horovodrun resize needs them";
}

Result<std::string> RankChanges::remove_rank(int64_t rank, const ProgramPolicy& policy, Time now) {
  HVD_RETURN_IF_ERROR(may_change(now));
  const Generation& current = *core_.table.current;
  if (rank < 0 || rank >= current.size()) {
    return not_found(
        fmt::format("the job has no rank {}; its last one is {}", rank, current.size() - 1));
  }
  const Member& member = current.members[static_cast<size_t>(rank)];
  const int number = member.incarnation;
  JobProcess& process = core_.table.processes.at(number);
  if (!core_.table.is_live(number) || process.is_removed) {
    return failed_precondition(fmt::format("rank {} is already leaving the job", rank));
  }
  process.is_removed = true;
  const int left = core_.table.live_processes(member.host);
  const Status status = core_.capacity.may_remove(member.host, left, fmt::format("rank {}", rank));
  if (!status.ok() || left == 0) process.is_removed = false;
  HVD_RETURN_IF_ERROR(status);
  if (left == 0) return remove_host(member.host, policy, now);
  core_.pool.remove(member.host, left);
  return fmt::format("rank {} on host {} leaves the job {}; its slot stays empty{}", rank,
                     member.host, policy.when_they_leave("the ranks", now),
                     core_.limits.hosts_join() ? "" : " until horovodrun resize needs it");
}

void RankChanges::host_leaves(int host, const std::string& why, double seconds,
                              const ProgramPolicy& policy, Time now) {
  JobHost& state = core_.table.hosts.at(host);
  state.why_it_ends = fmt::format("host {} leaves the job: {}", state.name(), why);
  state.ends_at = now + duration_of(seconds);
  core_.actions.notify_leave(host, seconds);
  if (core_.table.current && !core_.capacity.has_state_without({state.name()})) {
    core_.actions.report(
        fmt::format("{}; no other host has the training state, and this one ends in {:g} s "
                    "(--leave-grace)",
                    state.why_it_ends, seconds));
    return;
  }
  release_host(state, policy, now);
}

void RankChanges::let_hosts_go(const ProgramPolicy& policy, Time now) {
  for (const auto& [number, host] : core_.table.hosts) {
    const std::string& name = host.name();  // clang 14 captures no structured binding
    const bool is_offered = std::any_of(core_.pool.offered().begin(), core_.pool.offered().end(),
                                        [&name](const Host& one) { return one.name == name; });
    if (host.why_it_ends.empty() || host.use == HostUse::kGone || !is_offered) continue;
    if (!core_.capacity.has_state_without({host.name()})) continue;
    release_host(host, policy, now);
  }
}

// Removes the host from the pool, so that its ranks leave the job.
void RankChanges::release_host(const JobHost& host, const ProgramPolicy& policy, Time now) {
  const auto left = std::chrono::round<std::chrono::seconds>(host.ends_at - now).count();
  core_.actions.report(fmt::format("{}; {}", host.why_it_ends, policy.until_host_ends(left)));
  if (core_.table.members_of(host.name()) > 0) {
    core_.failure.note(kExitLauncher, host.why_it_ends, -1);
  }
  core_.pool.remove(host.name(), 0);
}

}  // namespace hvd::launcher
