#include "launcher/agent/ranks/rank_meters.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/agent/ranks/process_usage.h"
#include "launcher/agent/ranks/rank_pressure.h"
#include "launcher/agent/ranks/rank_signs.h"

namespace hvd::launcher {
namespace {

RankActivity activity_of(const std::vector<ProcessEntry>& tree) {
  if (tree.empty() || tree.front().state == 'Z') return RankActivity::kEnded;
  const bool is_stopped = std::ranges::any_of(tree, [](const ProcessEntry& process) {
    return process.state == 'T' || process.state == 't';
  });
  return is_stopped ? RankActivity::kStopped : RankActivity::kRuns;
}

// Returns milliseconds since the start of a process; `start` is in ticks since boot.
uint64_t age_milliseconds(int64_t start) {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const int64_t since_boot = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  return static_cast<uint64_t>(
      std::max<int64_t>(since_boot - start * 1000 / ::sysconf(_SC_CLK_TCK), 0));
}

int64_t milliseconds_since(uint64_t steady_nanoseconds) {
  if (steady_nanoseconds == 0) return -1;
  const auto now =
      static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
  return static_cast<int64_t>((now - std::min(now, steady_nanoseconds)) / 1'000'000);
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
    rank.age_milliseconds = runs ? age_milliseconds(tree.front().start) : 0;
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
