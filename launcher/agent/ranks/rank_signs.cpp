#include "launcher/agent/ranks/rank_signs.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/proc_file.h"
#include "base/text.h"
#include "launcher/agent/host/process_snapshot.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/agent/host/socket_bytes.h"
#include "launcher/agent/ranks/process_usage.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

// Maximum number of descriptors examined per process.
constexpr int kMostDescriptors = 4096;

std::string link_of(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  return error ? std::string() : target.string();
}

uint64_t digest(uint64_t before, uint64_t value) { return (before ^ value) * 0x100000001b3; }

// Adds the counters of /proc/PID/io. Returns false if the counters are hidden.
bool add_io(const std::string& folder, RankSigns& signs) {
  const std::string io = read_proc_file(folder + "io");
  std::string_view rest = io;
  while (!rest.empty()) {
    const std::string_view line = take_line(rest);
    for (const auto& [name, count] :
         {std::pair("rchar: ", &signs.bytes), std::pair("wchar: ", &signs.bytes),
          std::pair("syscr: ", &signs.calls), std::pair("syscw: ", &signs.calls),
          std::pair("read_bytes: ", &signs.storage_bytes),
          std::pair("write_bytes: ", &signs.storage_bytes)}) {
      const std::string_view start(name);
      if (line.starts_with(start))
        *count += static_cast<uint64_t>(parse_int(line.substr(start.size())).value_or(0));
    }
  }
  return !io.empty();
}

// Microseconds of a thread: on a processor, and waiting for a processor.
struct ThreadTimes {
  uint64_t cpu = 0, delay = 0;
};

ThreadTimes thread_times(const std::string& folder) {
  // The format is "<nanoseconds on a processor> <nanoseconds of delay> <number of timeslices>"
  const std::string text = read_proc_file(folder + "schedstat");
  const std::vector<std::string_view> words = words_of(text);
  if (words.size() < 2) return {cpu_times(folder).own, 0};
  return {static_cast<uint64_t>(parse_int(words[0]).value_or(0)) / 1000,
          static_cast<uint64_t>(parse_int(words[1]).value_or(0)) / 1000};
}

// Returns the sum over the threads of a process, without its main thread if `has_main` is false. The time of the whole
// process cannot be used: it would be read at another moment than the time of the spinning main thread.
ThreadTimes threads_times(pid_t pid, bool has_main) {
  const std::string tasks = cat("/proc/", pid, "/task/");
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(tasks.c_str()), ::closedir);
  ThreadTimes sum;
  while (const dirent* entry = directory ? ::readdir(directory.get()) : nullptr) {
    if (entry->d_name[0] == '.' || (!has_main && entry->d_name == cat(pid))) continue;
    const ThreadTimes times = thread_times(cat(tasks, entry->d_name, "/"));
    sum.cpu += times.cpu;
    sum.delay += times.delay;
  }
  return sum;
}

// Adds the inodes of the process's sockets. Returns false if they are hidden.
bool add_sockets(const std::string& folder, std::set<uint64_t>& inodes) {
  const std::string fds = folder + "fd/";
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(fds.c_str()), ::closedir);
  if (!directory) return false;
  for (int count = 0; count < kMostDescriptors; ++count) {
    const dirent* const entry = ::readdir(directory.get());
    if (entry == nullptr) return true;
    constexpr std::string_view kSocket = "socket:[";
    const std::string target = link_of(fds + entry->d_name);
    if (!target.starts_with(kSocket)) continue;
    const std::string_view number(target.data() + kSocket.size(),
                                  target.size() - kSocket.size() - 1);
    inodes.insert(static_cast<uint64_t>(parse_int(number).value_or(0)));
  }
  return false;
}

bool is_traced(const std::string& folder) {
  const std::string status = read_proc_file(folder + "status");
  constexpr std::string_view kTracer = "\nTracerPid:\t";
  const size_t at = status.find(kTracer);
  return at != std::string::npos && status[at + kTracer.size()] != '0';
}

// Returns whether the main thread of the process reads a terminal or `input`, the standard input of the rank.
bool reads_user(const std::string& folder, const std::string& input) {
  const std::string call = read_proc_file(folder + "syscall");
  const std::vector<std::string_view> words = words_of(call);
  if (words.size() < 2 || words[0] != cat(SYS_read) || !words[1].starts_with("0x")) return false;
  const std::string fd = cat(std::strtoul(std::string(words[1]).c_str(), nullptr, 16));
  const std::string target = link_of(cat(folder, "fd/", fd));
  return target.starts_with("/dev/pts/") || target.starts_with("/dev/tty") ||
         (target == input && !target.starts_with("/dev/null") && !target.empty());
}

// `python`: the process whose main thread may spin while it waits.
void add_process(const ProcessEntry& process, const std::string& input, pid_t python,
                 RankSigns& signs, std::set<uint64_t>& inodes) {
  const std::string folder = cat("/proc/", process.pid, "/");
  signs.processes = digest(digest(signs.processes, static_cast<uint64_t>(process.pid)),
                           static_cast<uint64_t>(process.start));
  const CpuTimes times = cpu_times(folder);
  const bool is_python = process.pid == python;
  const ThreadTimes threads = threads_times(process.pid, !is_python);
  signs.other_microseconds += times.of_children + (is_python ? threads.cpu : times.own);
  signs.other_delay_microseconds += threads.delay;
  if (is_python) {
    const ThreadTimes main = thread_times(cat(folder, "task/", python, "/"));
    signs.main_microseconds = main.cpu + main.delay;
  }
  if (process.state == 'Z') return;  // a zombie has no files
  if (process.state == 'T' || process.state == 't' || is_traced(folder) ||
      reads_user(folder, input)) {
    signs.is_excused = 1;
  }
  if (!add_io(folder, signs) || !add_sockets(folder, inodes)) signs.is_hidden = 1;
}

RankSigns signs_of(int rank, const std::vector<ProcessEntry>& tree,
                   const std::optional<std::map<uint64_t, uint64_t>>& sockets) {
  RankSigns signs{.rank = rank};
  std::set<uint64_t> inodes;
  const std::string input = tree.empty() ? "" : link_of(cat("/proc/", tree[0].pid, "/fd/0"));
  std::vector<pid_t> processes;
  for (const ProcessEntry& process : tree) processes.push_back(process.pid);
  const std::vector<pid_t> pythons = topmost_pythons(processes);
  const pid_t python = pythons.size() == 1 ? pythons.front() : -1;
  for (const ProcessEntry& process : tree) {
    add_process(process, input, python, signs, inodes);
    const std::string network = link_of(cat("/proc/", process.pid, "/ns/net"));
    if (process.state != 'Z' && network != link_of("/proc/self/ns/net"))
      signs.is_hidden = 1;  // connections in that namespace cannot be read
  }
  for (const uint64_t inode : inodes) {
    signs.processes = digest(signs.processes, inode);
    if (!sockets) continue;
    const auto found = sockets->find(inode);
    if (found != sockets->end()) signs.socket_bytes += found->second;
  }
  if (!sockets && !inodes.empty()) signs.is_hidden = 1;
  return signs;
}

// Adds the usage of processes without a rank as ancestor, because they may still work for a rank.
void add_orphans(const std::vector<ProcessEntry>& orphans, RankSigns& signs) {
  for (const ProcessEntry& process : orphans) {
    const std::string folder = cat("/proc/", process.pid, "/");
    const CpuTimes times = cpu_times(folder);
    signs.other_microseconds += times.own + times.of_children;
    add_io(folder, signs);
  }
}

}  // namespace

std::vector<RankSigns> signs_of(const std::vector<std::pair<int, pid_t>>& ranks) {
  std::vector<ProcessEntry> rest = processes_below(::getpid());
  const auto sockets = tcp_bytes();
  std::vector<RankSigns> signs;
  for (const auto& [rank, pid] : ranks) {
    const std::vector<ProcessEntry> tree = tree_of(pid, rest);
    signs.push_back(signs_of(rank, tree, sockets));
    std::set<pid_t> pids;
    for (const ProcessEntry& process : tree) pids.insert(process.pid);
    std::erase_if(rest, [&](const ProcessEntry& each) { return pids.contains(each.pid); });
  }
  if (!signs.empty()) add_orphans(rest, signs.front());
  return signs;
}

}  // namespace hvd::launcher
