#include "launcher/elastic/process_table.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace hvd::launcher {

int ProcessTable::live_processes() const {
  return static_cast<int>(std::count_if(processes.begin(), processes.end(), [](const auto& one) {
    return one.second.phase != ProcessPhase::kGone;
  }));
}

int ProcessTable::live_processes(const std::string& host) const {
  int count = 0;
  for (const auto& [number, process] : processes) {
    if (process.is_removed) continue;
    if (process.phase != ProcessPhase::kGone && hosts.at(process.host).name() == host) ++count;
  }
  return count;
}

int ProcessTable::rank_of(int process) const {
  if (!current) return -1;
  for (size_t rank = 0; rank < current->members.size(); ++rank) {
    if (current->members[rank].incarnation == process) return static_cast<int>(rank);
  }
  return -1;
}

std::vector<int> ProcessTable::members() const {
  std::vector<int> processes;
  if (!current) return processes;
  for (const Member& member : current->members) {
    processes.push_back(member.incarnation);
  }
  return processes;
}

bool ProcessTable::is_member(int process) const { return rank_of(process) >= 0; }

bool ProcessTable::is_live(int process) const {
  const auto found = processes.find(process);
  return found != processes.end() && found->second.phase != ProcessPhase::kGone;
}

bool ProcessTable::has_live_process(const JobHost& host) const {
  return std::ranges::any_of(host.run.ranks(),
                             [this](const RankRun* rank) { return is_live(rank->number()); });
}

int ProcessTable::staying_processes() const {
  return static_cast<int>(
      std::count_if(processes.begin(), processes.end(), [this](const auto& one) {
        return one.second.phase != ProcessPhase::kGone &&
               hosts.at(one.second.host).use != HostUse::kLeaving;
      }));
}

std::vector<Slot> ProcessTable::places_on(const std::string& name, int host, int first,
                                          int count) const {
  std::set<int> used;
  for (const auto& [number, process] : processes) {
    if (process.phase != ProcessPhase::kGone && hosts.at(process.host).name() == name) {
      used.insert(process.slot);
    }
  }
  std::vector<Slot> places;
  const int all = live_processes(name) + count;
  int slot = 0;
  for (int process = first; process < first + count; ++process, ++slot) {
    while (used.contains(slot)) ++slot;
    places.push_back({.rank = process,
                      .host = host,
                      .local_rank = slot,
                      .local_size = all,
                      .cross_rank = 0,
                      .cross_size = 1});
  }
  return places;
}

bool ProcessTable::has_live_member_beside(int host) const {
  return std::any_of(processes.begin(), processes.end(), [&](const auto& one) {
    return one.second.host != host && is_live(one.first) && is_member(one.first);
  });
}

bool ProcessTable::has_ending_member() const {
  const std::vector<int> ranks = members();
  return std::any_of(ranks.begin(), ranks.end(), [this](int process) {
    const HostRun& host = host_of(process).run;
    if (host.is_over()) return false;
    return std::ranges::any_of(host.ranks(), [&](const RankRun* rank) {
      const bool ends = host.state() == HostState::kEnding || rank->state() == RankState::kEnding;
      return rank->number() == process && ends && !rank->is_over();
    });
  });
}

bool ProcessTable::has_survivor() const {
  const std::vector<int> ranks = members();
  return std::any_of(ranks.begin(), ranks.end(),
                     [this](int process) { return is_live(process) && has_met(process); });
}

bool ProcessTable::all_have_asked() const {
  for (const auto& [number, process] : processes) {
    if (process.phase == ProcessPhase::kMember) return false;
    if (!current && process.is_coming()) return false;
  }
  return true;
}

std::string ProcessTable::whose(int process) const {
  const int rank = rank_of(process);
  return cat(rank >= 0 ? cat("rank ", rank) : cat("process ", process), " on host ",
             host_of(process).name());
}

int ProcessTable::live_members() const {
  if (!current) return 0;
  return static_cast<int>(
      std::count_if(current->members.begin(), current->members.end(),
                    [this](const Member& member) { return is_live(member.incarnation); }));
}

int ProcessTable::staying_members() const {
  const std::vector<int> ranks = members();
  return static_cast<int>(std::count_if(ranks.begin(), ranks.end(), [this](int number) {
    const JobProcess& process = processes.at(number);
    return is_live(number) && !process.is_removed &&
           hosts.at(process.host).use != HostUse::kLeaving;
  }));
}

int ProcessTable::members_of(const std::string& host) const {
  if (!current) return 0;
  return static_cast<int>(std::count_if(
      current->members.begin(), current->members.end(),
      [&](const Member& member) { return member.host == host && is_live(member.incarnation); }));
}

std::vector<int> ProcessTable::live_members_of(const JobHost& host) const {
  std::vector<int> ranks;
  for (const RankRun* rank : host.run.ranks()) {
    if (is_live(rank->number()) && is_member(rank->number())) ranks.push_back(rank->number());
  }
  return ranks;
}

bool ProcessTable::has_met(int process) const { return processes.at(process).generation >= 0; }

}  // namespace hvd::launcher
