#include "launcher/agent/ranks/rank_meters.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/proc_file.h"
#include "base/text.h"
#include "launcher/agent/host/process_connections.h"
#include "launcher/agent/host/process_snapshot.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/agent/host/socket_bytes.h"
#include "launcher/agent/ranks/process_usage.h"
#include "launcher/agent/ranks/rank_pressure.h"

namespace hvd::launcher {
namespace {

RankActivity activity_of(const std::vector<ProcessEntry>& tree) {
  if (tree.empty() || tree.front().state == 'Z') return RankActivity::kEnded;
  const bool is_stopped = std::ranges::any_of(tree, [](const ProcessEntry& process) {
    return process.state == 'T' || process.state == 't';
  });
  return is_stopped ? RankActivity::kStopped : RankActivity::kRuns;
}

int64_t milliseconds_since(uint64_t steady_nanoseconds) {
  if (steady_nanoseconds == 0) return -1;
  const auto now =
      static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
  return static_cast<int64_t>((now - std::min(now, steady_nanoseconds)) / 1'000'000);
}

// Maximum number of descriptors examined per process.
constexpr size_t kMostDescriptors = 4096;

uint64_t digest(uint64_t before, uint64_t value) { return (before ^ value) * 0x100000001b3; }

// Adds the counters of /proc/PID/io. Returns false if the counters are hidden.
bool add_io(const std::string& folder, RankSigns& signs) {
  const std::string io = read_proc_file(folder + "io");
  const auto count = [&](const char* name) { return line_count(io, name).value_or(0); };
  signs.bytes += count("rchar:") + count("wchar:");
  signs.calls += count("syscr:") + count("syscw:");
  signs.storage_bytes += count("read_bytes:") + count("write_bytes:");
  return !io.empty();
}

bool is_traced(const std::string& folder) {
  return line_count(read_proc_file(folder + "status"), "TracerPid:").value_or(0) != 0;
}

// Returns whether the main thread of the process reads a terminal or `input`, the standard input of the rank.
bool reads_user(const std::string& folder, const std::string& input) {
  const std::string call = read_proc_file(folder + "syscall");
  const std::vector<std::string_view> words = words_of(call);
  if (words.size() < 2 || words[0] != cat(SYS_read) || !words[1].starts_with("0x")) return false;
  const std::string fd = cat(std::strtoul(std::string(words[1]).c_str(), nullptr, 16));
  const std::string target = link_target(cat(folder, "fd/", fd));
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
  // The time of the whole process cannot be used: it would be read at another moment than the time of the spinning main
  // thread.
  const ThreadTimes threads = threads_times(folder, is_python ? cat(python) : "", SIZE_MAX);
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
  if (!add_io(folder, signs) || !add_sockets(process.pid, kMostDescriptors, inodes))
    signs.is_hidden = 1;
}

RankSigns signs_of(int rank, const std::vector<ProcessEntry>& tree,
                   const std::optional<std::map<uint64_t, uint64_t>>& sockets) {
  RankSigns signs{.rank = rank};
  std::set<uint64_t> inodes;
  const std::string input = tree.empty() ? "" : link_target(cat("/proc/", tree[0].pid, "/fd/0"));
  std::vector<pid_t> processes;
  for (const ProcessEntry& process : tree) processes.push_back(process.pid);
  const std::vector<pid_t> pythons = topmost_pythons(processes);
  const pid_t python = pythons.size() == 1 ? pythons.front() : -1;
  for (const ProcessEntry& process : tree) {
    add_process(process, input, python, signs, inodes);
    const std::string network = link_target(cat("/proc/", process.pid, "/ns/net"));
    if (process.state != 'Z' && network != link_target("/proc/self/ns/net"))
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

// Returns the counters that grow while the ranks' processes work. Stops and wakes no process. `ranks`: pairs of a rank
// and its first process.
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

}  // namespace

void RankMeters::prepare(const std::vector<int>& ranks) {
  for (const int rank : ranks) ranks_.push_back({.rank = rank});
  auto pages = MetricsPages::create(ranks.size());
  if (pages.ok()) pages_.emplace(*std::move(pages));
}

std::string RankMeters::place_of(size_t index) const {
  return pages_ ? pages_->place_of(index) : std::string();
}

void RankMeters::on_joined(int rank) {
  for (RankMetrics& each : ranks_) {
    if (each.rank == rank) each.has_joined = 1;
  }
}

HostSample RankMeters::read(SampleGroups groups, const std::vector<pid_t>& pids,
                            const GpuUse& gpus) {
  HostSample sample;
  if (groups.has(SampleGroup::kMetrics)) sample.metrics.push_back(read_metrics(groups, pids, gpus));
  std::vector<std::pair<int, pid_t>> running;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (pids[i] <= 0) continue;
    const int rank = ranks_[i].rank;
    running.emplace_back(rank, pids[i]);
    const bool reads_page = groups.has(SampleGroup::kSteps) || groups.has(SampleGroup::kAnnounced);
    const auto page = pages_ && reads_page ? pages_->read(i) : std::nullopt;
    if (page && groups.has(SampleGroup::kSteps)) {
      sample.steps.push_back(steps_of(*page));
      sample.steps.back().rank = rank;
    }
    if (page && groups.has(SampleGroup::kAnnounced))
      sample.announced.push_back({.rank = rank,
                                  .world_size = page->size,
                                  .operations = page->announced.operations,
                                  .joins = page->announced.joins});
  }
  if (groups.has(SampleGroup::kSigns)) sample.signs = signs_of(running);
  return sample;
}

// The counts include ranks that have ended.
HostMetrics RankMeters::read_metrics(SampleGroups groups, const std::vector<pid_t>& pids,
                                     const GpuUse& gpus) {
  HostMetrics host;
  const bool has_pressure = groups.has(SampleGroup::kPressure);
  if (has_pressure) host.pressure = host_pressure();
  const std::vector<ProcessEntry> all = processes_below(::getpid());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    RankMetrics& rank = ranks_[i];
    const auto tree = pids[i] > 0 ? tree_of(pids[i], all) : std::vector<ProcessEntry>();
    rank.activity = activity_of(tree);
    const bool runs = rank.activity != RankActivity::kEnded;
    rank.pid = runs ? pids[i] : 0;
    rank.age_milliseconds =
        runs ? static_cast<uint64_t>(age_seconds(tree.front().start) * 1000) : 0;
    rank.is_on_disk =
        std::ranges::any_of(tree, [](const ProcessEntry& process) { return process.state == 'D'; });
    if (has_pressure && runs) rank.throttled_microseconds = throttled_microseconds(pids[i]);
    advance(rank.usage, usage_of(tree));
    std::vector<pid_t> processes;
    for (const ProcessEntry& process : tree) processes.push_back(process.pid);
    rank.usage.gpu_bytes = gpus.bytes_of(processes);
    rank.gpu_percent = gpus.percent_of(processes);
    if (const auto page = pages_ ? pages_->read(i) : std::nullopt) {
      rank.has_counters = 1;
      rank.counts = counts_of(page->metrics);
      host.sum.add(page->metrics);
      const StepMeans means = means_of(page->steps).value_or(StepMeans{});
      rank.step_microseconds = static_cast<uint64_t>(means.seconds * 1e6);
      rank.waited_thousandths = static_cast<uint32_t>(means.waited_share * 1000);
    }
    host.ranks.push_back(rank);
  }
  host.step_age = milliseconds_since(host.sum.stepped_at);
  return host;
}

// The last step began when this late rank arrived. The rank arrives again one mean step time later.
std::optional<Clock::time_point> RankMeters::late_moment(size_t index,
                                                         std::chrono::microseconds late) const {
  const auto page = pages_ ? pages_->read(index) : std::nullopt;
  const auto means = page ? means_of(page->steps) : std::nullopt;
  if (!means || page->steps.began.count() == 0) return {};
  const auto step = duration_of(means->seconds);
  Clock::time_point moment{std::chrono::duration_cast<Clock::duration>(page->steps.began)};
  const auto now = Clock::now();
  moment += step - late / 2;
  if (step.count() > 0 && moment < now) moment += step * ((now - moment) / step + 1);
  return moment;
}

void RankMeters::show_longest_wait(uint32_t microseconds) const {
  for (size_t i = 0; pages_ && i < ranks_.size(); ++i) pages_->set_longest_wait(i, microseconds);
}

}  // namespace hvd::launcher
