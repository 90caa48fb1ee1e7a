#include "launcher/agent/host/process_tree.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <map>
#include <utility>

#include "base/proc_file.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::launcher {

namespace {

constexpr char kUninterruptible = 'D';  // in /proc/PID/stat

std::optional<ProcessEntry> read_process(int64_t pid) {
  const auto stat = ProcStat::of(pid);
  if (!stat) return {};
  return ProcessEntry{static_cast<pid_t>(pid), static_cast<pid_t>((*stat)[StatField::kParent]),
                      (*stat)[StatField::kStart], stat->state(), stat->name()};
}

}  // namespace

bool sees_its_processes() {
  const auto self = read_process(::getpid());
  return self && self->parent == ::getppid();
}

double age_seconds(int64_t start) {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const double started = static_cast<double>(start) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return std::max(
      0.0, static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 - started);
}

std::vector<ProcessEntry> processes_below(pid_t root) {
  std::vector<ProcessEntry> found;
  if (is_childless()) return found;
  std::multimap<pid_t, ProcessEntry> by_parent;
  DIR* directory = ::opendir("/proc");
  if (directory == nullptr) return found;
  while (const dirent* entry = ::readdir(directory)) {
    const auto pid = parse_int(entry->d_name);
    if (!pid) continue;
    auto process = read_process(*pid);
    if (process) by_parent.emplace(process->parent, std::move(*process));
  }
  ::closedir(directory);
  std::vector<pid_t> parents = {root};
  while (!parents.empty()) {
    const pid_t parent = parents.back();
    parents.pop_back();
    const auto [begin, end] = by_parent.equal_range(parent);
    for (auto child = begin; child != end; ++child) {
      parents.push_back(child->second.pid);
      found.push_back(child->second);
    }
    by_parent.erase(begin, end);
  }
  return found;
}

// A pidfd refers to one process permanently. The start time proves that this process is the process of the scan.
void signal_process(const ProcessEntry& process, std::initializer_list<int> numbers) {
  const UniqueFd held(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  const auto now = read_process(process.pid);
  if (!now || now->start != process.start) return;
  for (const int number : numbers) {
    if (held)
      ::syscall(SYS_pidfd_send_signal, held.get(), number, nullptr, 0);
    else  // Linux before 5.3, or the process has no free descriptor
      ::kill(process.pid, number);
  }
}

namespace {

// Signals each descendant that `is_meant` accepts. A child that leads a process group, as each rank does, is
// signalled together with its group, because the kernel completes no fork in a group while it
// signals the group. A process that a signal handler starts later is not signalled.
template <typename Filter>
void signal_each(std::initializer_list<int> numbers, const std::set<pid_t>& spared,
                 const Filter& is_meant) {
  const std::vector<ProcessEntry> processes = processes_below(::getpid());
  std::set<pid_t> groups, spared_groups;
  for (const pid_t pid : spared) spared_groups.insert(::getpgid(pid));
  for (const ProcessEntry& process : processes) {
    // The pid of a child cannot be reused before this process reaps the child.
    if (process.parent != ::getpid() || ::getpgid(process.pid) != process.pid) continue;
    if (spared_groups.contains(process.pid) || !is_meant(process.pid)) continue;
    for (const int number : numbers) ::kill(-process.pid, number);
    groups.insert(process.pid);
  }
  for (const ProcessEntry& process : processes) {
    if (spared.contains(process.pid) || groups.contains(::getpgid(process.pid))) continue;
    if (is_meant(process.pid)) signal_process(process, numbers);
  }
}

}  // namespace

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<ProcessEntry> tree_of(pid_t root, const std::vector<ProcessEntry>& all) {
  std::vector<ProcessEntry> tree;
  const auto add = [&](const auto& is_meant) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(tree), is_meant);
  };
  add([&](const ProcessEntry& each) { return each.pid == root; });
  for (size_t at = 0; at < tree.size(); ++at) {
    const pid_t parent = tree[at].pid;
    add([&](const ProcessEntry& each) { return each.parent == parent; });
  }
  return tree;
}

std::vector<pid_t> descendants() {
  std::vector<pid_t> pids;
  for (const ProcessEntry& process : processes_below(::getpid())) pids.push_back(process.pid);
  return pids;
}

std::vector<pid_t> descendants_of(pid_t pid) {
  std::vector<pid_t> pids = {pid};
  for (const ProcessEntry& process : processes_below(pid)) pids.push_back(process.pid);
  return pids;
}

bool handles_signal(std::string_view status, int number) {
  const size_t at = status.find("\nSigCgt:");
  if (at == std::string_view::npos) return false;
  uint64_t mask = 0;
  for (const char digit : trim(status.substr(at + 8, 18))) {
    const int value = digit <= '9' ? digit - '0' : digit - 'a' + 10;
    if (value < 0 || value > 15) break;
    mask = mask << 4 | static_cast<uint64_t>(value);
  }
  return (mask >> (number - 1) & 1) != 0;
}

void signal_descendants(std::initializer_list<int> numbers, const std::set<pid_t>& spared) {
  signal_each(numbers, spared, [](pid_t) { return true; });
}

void signal_group(pid_t group, std::initializer_list<int> numbers, const std::set<pid_t>& spared) {
  signal_each(numbers, spared, [group](pid_t pid) { return ::getpgid(pid) == group; });
}

bool is_childless() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

std::string describe_descendants(const std::function<std::optional<int>(pid_t)>& rank_of) {
  std::vector<std::string> described;
  for (const ProcessEntry& process : processes_below(::getpid())) {
    if (process.state == 'Z') continue;
    const auto rank = rank_of(process.pid);
    std::string state;
    if (process.state == kUninterruptible) {
      const std::string contents = read_proc_file(cat("/proc/", process.pid, "/wchan"));
      const std::string_view function = trim(contents);
      const bool is_known = !function.empty() && function != "0";
      state = cat(", state D", is_known ? cat(" in ", printable(function)) : "");
    }
    described.push_back(cat(printable(process.name), rank ? cat(" of rank ", *rank) : "", " (pid ",
                            process.pid, state, ")"));
  }
  return join(described, ", ");
}

bool are_stuck_in_kernel(const std::set<pid_t>& spared) {
  bool is_any = false;
  for (const ProcessEntry& process : processes_below(::getpid())) {
    if (process.state == 'Z' || spared.contains(process.pid)) continue;
    if (process.state != kUninterruptible) return false;
    is_any = true;
  }
  return is_any;
}

}  // namespace hvd::launcher
