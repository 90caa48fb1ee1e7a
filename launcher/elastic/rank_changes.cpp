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
  if (!core_.current) return failed_precondition("the ranks of the job have not started yet");
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

// Undoes all removals except those of hosts whose agents are ending: such hosts cannot stay.
void RankChanges::take_removed_back() {
  core_.pool.take_back([this](const std::string& name) {
    return std::ranges::any_of(core_.hosts.hosts(), [&name](const HostRun& host) {
      return host.name() == name && !host.why_it_ends().empty() && !host.is_gone();
    });
  });
  for (RankRun& process : core_.hosts.ranks()) process.place().is_removed = false;
}

std::string RankChanges::about_size(int ranks, const ProgramPolicy& policy, Time now) const {
  const int members = live_members(core_.hosts);
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
  const bool has_ranks = members_of(core_.hosts, name) > 0;
  core_.pool.remove(name, 0);
  if (!has_ranks) {
    return fmt::format("{} is not used by the job; its slots stay empty until {}", what,
                       until_used_again());
  }
  return fmt::format("{} leaves the job {}; its slots stay empty until {}", what,
                     policy.when_they_leave("its ranks", now), until_used_again());
}

// Returns a clause about what makes the job use the slots of a removed host again.
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
  const auto members = core_.hosts.members();
  if (rank < 0 || rank >= std::ssize(members)) {
    return not_found(
        fmt::format("the job has no rank {}; its last one is {}", rank, members.size() - 1));
  }
  RankRun& process = *members[static_cast<size_t>(rank)];
  const std::string& host = process.host().name();
  if (process.is_gone() || process.place().is_removed) {
    return failed_precondition(fmt::format("rank {} is already leaving the job", rank));
  }
  process.place().is_removed = true;
  const int left = live_processes(core_.hosts, host);
  const Status status = core_.capacity.may_remove(host, left, fmt::format("rank {}", rank));
  if (!status.ok() || left == 0) process.place().is_removed = false;
  HVD_RETURN_IF_ERROR(status);
  if (left == 0) return remove_host(host, policy, now);
  core_.pool.remove(host, left);
  return fmt::format("rank {} on host {} leaves the job {}; its slot stays empty{}", rank, host,
                     policy.when_they_leave("the ranks", now),
                     core_.limits.hosts_join() ? "" : " until horovodrun resize needs it");
}

void RankChanges::host_leaves(HostRun& host, const std::string& why, double seconds,
                              const ProgramPolicy& policy, Time now) {
  host.ends_at(now + duration_of(seconds),
               fmt::format("host {} leaves the job: {}", host.name(), why));
  core_.actions.notify_leave(host, seconds);
  if (core_.current && !core_.capacity.has_state_without({host.name()})) {
    core_.actions.report(
        fmt::format("{}; no other host has the training state, and this one ends in {:g} s "
                    "(--leave-grace)",
                    host.why_it_ends(), seconds));
    return;
  }
  release_host(host, policy, now);
}

void RankChanges::let_hosts_go(const ProgramPolicy& policy, Time now) {
  for (const HostRun& host : core_.hosts.hosts()) {
    const bool is_offered = std::ranges::any_of(
        core_.pool.offered(), [&host](const Host& one) { return one.name == host.name(); });
    if (host.why_it_ends().empty() || host.is_gone() || !is_offered) continue;
    if (!core_.capacity.has_state_without({host.name()})) continue;
    release_host(host, policy, now);
  }
}

// Removes the host from the pool, so that its ranks leave the job.
void RankChanges::release_host(const HostRun& host, const ProgramPolicy& policy, Time now) {
  const auto left = std::chrono::round<std::chrono::seconds>(host.ends_at() - now).count();
  core_.actions.report(fmt::format("{}; {}", host.why_it_ends(), policy.until_host_ends(left)));
  if (members_of(core_.hosts, host.name()) > 0) {
    core_.failure.note(kExitLauncher, host.why_it_ends(), -1);
  }
  core_.pool.remove(host.name(), 0);
}

}  // namespace hvd::launcher
