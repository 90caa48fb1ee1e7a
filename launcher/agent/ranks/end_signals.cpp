#include "launcher/agent/ranks/end_signals.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "base/proc_file.h"
#include "base/text.h"
#include "launcher/agent/host/end_targets.h"

namespace hvd::launcher {
namespace {

std::string program_of(const std::string& folder) {
  std::error_code error;
  return std::filesystem::read_symlink(folder + "exe", error).string();
}

}  // namespace

void EndSignals::on_joined(pid_t pid) {
  if (const auto start = start_of(pid)) joined_[pid] = *start;
}

void EndSignals::end_all(const std::vector<pid_t>& ranks, int signal) {
  const std::vector<ProcessEntry> all = processes_below(::getpid());
  std::set<pid_t> signalled;
  for (const pid_t rank : ranks) signalled.merge(choose(rank, signal, all));
  signal_descendants({signal, SIGCONT}, signalled);
}

void EndSignals::end_one(pid_t rank, int signal) {
  signal_group(rank, {signal, SIGCONT}, choose(rank, signal, processes_below(::getpid())));
}

// Signals the chosen processes of the rank. Returns all processes of the rank, or no processes if none was chosen.
std::set<pid_t> EndSignals::choose(pid_t rank, int signal, const std::vector<ProcessEntry>& all) {
  if (signal != SIGTERM) return {};
  const std::vector<ProcessEntry> tree = tree_of(rank, all);
  std::vector<EndCandidate> candidates;
  for (const ProcessEntry& each : tree) {
    const std::string folder = cat("/proc/", each.pid, "/");
    const auto joined = joined_.find(each.pid);
    candidates.push_back(
        {.pid = each.pid,
         .parent = each.parent,
         .command = read_proc_file(folder + "cmdline"),
         .program = program_of(folder),
         .handles_sigterm = handles_signal(read_proc_file(folder + "status"), SIGTERM),
         .has_joined =
             joined != joined_.end() && joined->second == each.start && each.state != 'Z'});
  }
  const std::vector<pid_t> targets = end_targets(candidates);
  if (targets.empty()) return {};
  std::set<pid_t> pids;
  for (const ProcessEntry& each : tree) {
    pids.insert(each.pid);
    if (std::find(targets.begin(), targets.end(), each.pid) != targets.end()) {
      signal_process(each, {signal, SIGCONT});
    } else {
      signal_process(each, {SIGCONT});  // a stopped process cannot wait for the process that saves
      left_out_.push_back({each, signal});
    }
  }
  return pids;
}

void EndSignals::on_reaped(const std::vector<pid_t>& ranks) {
  if (left_out_.empty()) return;
  std::map<pid_t, const ProcessEntry*> living;
  const std::vector<ProcessEntry> all = processes_below(::getpid());
  for (const ProcessEntry& each : all) living[each.pid] = &each;
  const auto is_of_rank = [&](pid_t pid) {
    for (auto at = living.find(pid); at != living.end(); at = living.find(at->second->parent)) {
      if (std::find(ranks.begin(), ranks.end(), at->first) != ranks.end()) return true;
    }
    return false;
  };
  std::erase_if(left_out_, [&](const LeftOut& each) {
    const auto found = living.find(each.process.pid);
    if (found == living.end() || found->second->start != each.process.start) return true;
    if (is_of_rank(each.process.pid)) return false;
    signal_process(*found->second, {each.signal, SIGCONT});
    return true;
  });
}

}  // namespace hvd::launcher
