#include "launcher/agent/ranks/end_signals.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>

#include "base/proc_file.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

// Returns whether the process only starts other processes and waits for them. Its SIGTERM handler saves nothing.
bool is_wrapper(const EndCandidate& process) {
  const std::string_view argument =
      std::string_view(process.command).substr(0, process.command.find('\0'));
  for (const std::string_view name : {"ash", "bash", "busybox", "csh", "dash", "fish", "ksh",
                                      "ksh93", "mksh", "sh", "tcsh", "timeout", "zsh"}) {
    if (base_name(process.program) == name || base_name(argument) == name) return true;
  }
  return false;
}

// Returns whether multiprocessing or joblib of Python started the process by exec, as a worker or its server.
bool is_multiprocessing(const EndCandidate& process) {
  for (const std::string_view sign :
       {"from multiprocessing.", "--multiprocessing-fork", "joblib.externals.loky"}) {
    if (process.command.find(sign) != std::string::npos) return true;
  }
  return false;
}

class RankTree {
 public:
  explicit RankTree(const std::vector<EndCandidate>& processes) : processes_(processes) {}

  using Claim = std::function<bool(const EndCandidate&)>;

  // Returns the topmost processes for which `holds` is true. Skips each process for which `left_out` is true and its
  // tree.
  std::vector<pid_t> topmost(const Claim& holds, const Claim& left_out) const {
    std::vector<pid_t> found;
    std::vector<const EndCandidate*> open = {&processes_.front()};
    while (!open.empty()) {
      const EndCandidate& process = *open.back();
      open.pop_back();
      if (left_out(process)) continue;
      if (holds(process)) {
        found.push_back(process.pid);
        continue;
      }
      for (const EndCandidate& each : processes_) {
        if (each.parent == process.pid && &each != &processes_.front()) open.push_back(&each);
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  // A subshell is a fork of its shell, but not a worker: it may start the process that saves.
  bool is_worker(const EndCandidate& process) const {
    if (&process == &processes_.front() || is_wrapper(process)) return false;
    const auto parent =
        std::find_if(processes_.begin(), processes_.end(),
                     [&](const EndCandidate& each) { return each.pid == process.parent; });
    return is_multiprocessing(process) ||
           (parent != processes_.end() && parent->command == process.command);
  }

 private:
  const std::vector<EndCandidate>& processes_;
};

}  // namespace

std::vector<pid_t> end_targets(const std::vector<EndCandidate>& processes) {
  if (processes.empty()) return {};
  const RankTree tree(processes);
  std::vector<pid_t> found = tree.topmost([](const EndCandidate& each) { return each.has_joined; },
                                          [](const EndCandidate&) { return false; });
  if (!found.empty()) return found;
  return tree.topmost(
      [](const EndCandidate& each) { return each.handles_sigterm && !is_wrapper(each); },
      [&](const EndCandidate& each) { return tree.is_worker(each); });
}

void EndSignals::on_joined(pid_t pid) {
  if (const int64_t start = start_of(pid); start != 0) joined_[pid] = start;
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
         .program = link_target(folder + "exe"),
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
