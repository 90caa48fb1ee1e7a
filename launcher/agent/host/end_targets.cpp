#include "launcher/agent/host/end_targets.h"

#include <algorithm>
#include <functional>

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

}  // namespace hvd::launcher
