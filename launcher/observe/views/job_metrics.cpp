#include "launcher/observe/views/job_metrics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/metrics/metrics_text.h"
#include "base/text.h"
#include "horovod/version.h"

namespace hvd::launcher {
namespace {

constexpr double kMicro = 1e-6;
// The time for which a host's last answer is used if the next one is late, for example over a slow link.
constexpr std::chrono::seconds kStays{2};
// No rank is training if no step has ended for these milliseconds plus the time of kIdleSteps steps. Steps vary in
// length, and an answer may be two seconds old.
constexpr uint64_t kIdleSteps = 5, kIdleMilliseconds = 2000;

template <typename T>
struct Sample {
  std::string_view name;
  std::string_view type;
  std::string_view help;
  uint64_t T::*value;
  double scale = 1;
};

constexpr std::array kCounts = {
    Sample<RankCounts>{"operations_total", "counter", "Operations that were completed.",
                       &RankCounts::operations},
    Sample<RankCounts>{"failed_operations_total", "counter", "Operations that failed.",
                       &RankCounts::failed_operations},
    Sample<RankCounts>{"bytes_total", "counter", "Input bytes of completed operations.",
                       &RankCounts::bytes},
    Sample<RankCounts>{"waited_seconds_total", "counter",
                       "Time of operations until all ranks had agreed on them.",
                       &RankCounts::waited_microseconds, kMicro},
    Sample<RankCounts>{"pending_operations", "gauge", "Operations that are not complete.",
                       &RankCounts::pending}};

constexpr std::array kUsage = {
    Sample<ProcessUsage>{"cpu_seconds_total", "counter", "Processor time of the ranks' processes.",
                         &ProcessUsage::cpu_microseconds, kMicro},
    Sample<ProcessUsage>{"run_delay_seconds_total", "counter",
                         "Time in which threads could run and had no processor.",
                         &ProcessUsage::run_delay_microseconds, kMicro},
    Sample<ProcessUsage>{"minor_faults_total", "counter", "Page faults without a read.",
                         &ProcessUsage::minor_faults},
    Sample<ProcessUsage>{"major_faults_total", "counter", "Page faults that read from storage.",
                         &ProcessUsage::major_faults},
    Sample<ProcessUsage>{"read_bytes_total", "counter", "Bytes read from storage.",
                         &ProcessUsage::read_bytes},
    Sample<ProcessUsage>{"written_bytes_total", "counter", "Bytes written to storage.",
                         &ProcessUsage::written_bytes},
    Sample<ProcessUsage>{"resident_bytes", "gauge", "Memory of the ranks' processes.",
                         &ProcessUsage::resident_bytes},
    Sample<ProcessUsage>{"threads", "gauge", "Threads of the ranks' processes.",
                         &ProcessUsage::threads},
    Sample<ProcessUsage>{"processes", "gauge", "Processes of the ranks.", &ProcessUsage::processes},
    Sample<ProcessUsage>{"gpu_bytes", "gauge", "Memory of the ranks' processes on GPUs.",
                         &ProcessUsage::gpu_bytes}};

// The values of the job, a host or a rank, and the labels of its samples.
struct Part {
  std::string labels;
  bool is_up = false;
  RankCounts counts{};
  ProcessUsage usage{};

  void add(const RankMetrics& rank) {
    for (const auto& field : kCounts) counts.*field.value += rank.counts.*field.value;
    for (const auto& field : kUsage) usage.*field.value += rank.usage.*field.value;
    counts.steps = std::max(counts.steps, rank.counts.steps);
  }
};

template <typename T, size_t N>
void put_fields(std::string& text, std::string_view prefix, const std::array<Sample<T>, N>& fields,
                const std::vector<Part>& parts, T Part::*values) {
  for (const Sample<T>& field : fields) {
    const std::string name = cat(prefix, field.name);
    put_family(text, name, field.type, field.help);
    for (const Part& part : parts) {
      const uint64_t value = part.*values.*field.value;
      put_sample(
          text, name, part.labels,
          field.scale == 1 ? cat(value) : number_text(static_cast<double>(value) * field.scale));
    }
  }
}

void put_parts(std::string& text, std::string_view prefix, const std::vector<Part>& parts) {
  put_family(text, cat(prefix, "up"), "gauge", "Whether it runs, is not stopped and answers.");
  for (const Part& part : parts) {
    put_sample(text, cat(prefix, "up"), part.labels, part.is_up ? "1" : "0");
  }
  put_family(text, cat(prefix, "steps_total"), "counter", "Training steps.");
  for (const Part& part : parts) {
    put_sample(text, cat(prefix, "steps_total"), part.labels, cat(part.counts.steps));
  }
  put_fields(text, prefix, kCounts, parts, &Part::counts);
  put_fields(text, prefix, kUsage, parts, &Part::usage);
}

template <typename State, typename Things>
void put_states(std::string& text, std::string_view name, std::string_view help, State last,
                const std::string& job, const Things& things) {
  put_family(text, name, "gauge", help);
  for (int state = 0; state <= static_cast<int>(last); ++state) {
    const auto count = std::ranges::count_if(
        things, [state](const auto& thing) { return static_cast<int>(thing.state()) == state; });
    put_sample(text, name, cat(job, ",state=\"", to_string(static_cast<State>(state)), "\""),
               cat(count));
  }
}

// Deletes the current values of a host that does not answer. The counts remain.
void forget_present(HostMetrics& host) {
  host.step_age = -1;
  host.sum.pending = 0;
  for (RankMetrics& rank : host.ranks) {
    rank.counts.pending = 0;
    rank.usage.resident_bytes = rank.usage.threads = rank.usage.processes = 0;
    rank.usage.gpu_bytes = 0;
  }
}

template <typename Name>
std::vector<Part> parts_of(const std::map<Name, Part>& named) {
  std::vector<Part> parts;
  for (const auto& [name, part] : named) parts.push_back(part);
  return parts;
}

}  // namespace

std::optional<MetricsLevel> parse_metrics_level(std::string_view word) {
  constexpr std::array<std::string_view, 3> kLevels = {"summary", "host", "rank"};
  const auto found = std::ranges::find(kLevels, word);
  if (found == kLevels.end()) return {};
  return static_cast<MetricsLevel>(found - kLevels.begin());
}

MetricsLevel metrics_level_of(std::string_view word, size_t hosts) {
  return parse_metrics_level(word).value_or(hosts <= 64 ? MetricsLevel::kHosts
                                                        : MetricsLevel::kSummary);
}

void JobMetrics::set(size_t host, const HostAnswer& answer, Clock::time_point now) {
  for (const HostMetrics& metrics : answer.sample.metrics)
    hosts_[host] = {.has_answered = true, .answered_at = now, .last = metrics};
}

void JobMetrics::take_late(size_t host, const HostAnswer& answer, Clock::time_point now) {
  hosts_.resize(std::max(hosts_.size(), host + 1));
  set(host, answer, now);
  find_ranks();
}

void JobMetrics::take(const std::vector<HostAnswer>& answers, Clock::time_point now) {
  hosts_.resize(std::max(hosts_.size(), answers.size()));
  for (size_t i = 0; i < answers.size(); ++i) {
    set(i, answers[i], now);
    Host& host = hosts_[i];
    host.has_answered = host.last && now - host.answered_at <= kStays;
    if (host.last && !host.has_answered) forget_present(*host.last);
  }
  find_ranks();
}

void JobMetrics::find_ranks() {
  by_rank_.clear();
  for (const Host& host : hosts_) {
    if (!host.has_answered) continue;
    for (const RankMetrics& rank : host.last->ranks) by_rank_[rank.rank] = &rank;
  }
}

const RankMetrics* JobMetrics::rank(int number) const {
  const auto found = by_rank_.find(number);
  return found == by_rank_.end() ? nullptr : found->second;
}

int64_t JobMetrics::step_age() const {
  int64_t youngest = -1;
  for (const Host& host : hosts_) {
    const int64_t age = host.last ? host.last->step_age : -1;
    if (age >= 0 && (youngest < 0 || age < youngest)) youngest = age;
  }
  return youngest;
}

bool JobMetrics::is_stepping() const {
  uint64_t step = 0;
  for (const auto& [number, rank] : by_rank_) step = std::max(step, rank->step_microseconds);
  const int64_t age = step_age();
  return age >= 0 && static_cast<uint64_t>(age) < kIdleMilliseconds + kIdleSteps * step / 1000;
}

// Returns the samples of the job itself, of its ranks by state and of its hosts by state.
std::string JobMetrics::about_job(const HostTable& hosts, const std::string& job) const {
  std::string text;
  put_family(text, "job_info", "gauge", "The job, as labels.");
  const std::string name = name_.empty() ? "" : cat(",name=\"", escape_label(name_), "\"");
  put_sample(text, "job_info", cat(job, name, ",version=\"", HVD_VERSION, "\""), "1");
  put_family(text, "job_restarts_total", "counter", "Earlier starts of the job (--max-restarts).");
  put_sample(text, "job_restarts_total", job, cat(restarts_));
  put_states(text, "ranks", "Ranks in a state, as horovodrun ps --json has them.",
             RankState::kKilled, job, hosts.ranks());
  put_states(text, "hosts", "Hosts in a state, as horovodrun ps --json has them.", HostState::kLost,
             job, hosts.hosts());
  return text;
}

std::string JobMetrics::text(const HostTable& hosts, MetricsLevel level) const {
  const std::string job = cat("job_id=\"", job_, "\"");
  Metrics sum;
  const int64_t step_age = this->step_age();
  Part all{.labels = job};
  // A host that has returned to an elastic job has two entries.
  std::map<std::string, Part> by_host;
  std::map<int, Part> by_rank;
  for (size_t i = 0; i < hosts_.size(); ++i) {
    const Host& host = hosts_[i];
    const HostRun& run = hosts.host(static_cast<int>(i));
    const std::string name = cat(job, ",host=\"", escape_label(run.name()), "\"");
    Part& of_host = by_host.try_emplace(run.name(), Part{.labels = name}).first->second;
    of_host.is_up |= host.has_answered && !run.is_over();
    if (!host.last) continue;
    sum.add(host.last->sum);
    for (const RankMetrics& rank : host.last->ranks) {
      all.add(rank);
      of_host.add(rank);
      const int number = hosts.rank_of(rank.rank);
      if (number < 0) continue;
      Part of_rank{.labels = cat(name, ",rank=\"", number, "\"")};
      of_rank.is_up = host.has_answered && rank.activity == RankActivity::kRuns;
      of_rank.add(rank);
      by_rank.insert_or_assign(number, std::move(of_rank));
    }
  }
  std::string text = about_job(hosts, job);
  const auto up =
      std::ranges::count_if(by_rank, [](const auto& rank) { return rank.second.is_up; });
  put_family(text, "ranks_up", "gauge", "Ranks that run, are not stopped, and whose host answers.");
  put_sample(text, "ranks_up", job, cat(up));
  if (step_age >= 0) {
    put_family(text, "step_age_seconds", "gauge", "Time since the last training step of any rank.");
    put_sample(text, "step_age_seconds", job, number_text(static_cast<double>(step_age) * 1e-3));
  }
  const LabelledMetrics labelled{job, &sum};
  text += metrics_text({&labelled, 1});
  put_fields(text, "job_", kUsage, {all}, &Part::usage);
  if (level >= MetricsLevel::kHosts) put_parts(text, "host_", parts_of(by_host));
  if (level >= MetricsLevel::kRanks) put_parts(text, "rank_", parts_of(by_rank));
  return text;
}

std::string JobMetrics::waits_text(const HostTable& hosts, MetricsLevel level) const {
  std::map<int, const RankRun*> ranks;
  for (const RankRun& run : hosts.ranks()) {
    if (run.waits() && run.is_member()) ranks[run.rank()] = &run;
  }
  if (ranks.empty()) return {};
  const std::string job = cat("job_id=\"", job_, "\"");
  std::string text;
  const auto stragglers = std::ranges::count_if(
      ranks, [](const auto& each) { return each.second->waits()->is_straggler; });
  put_family(text, "stragglers", "gauge", "Ranks that are late in most steps.");
  put_sample(text, "stragglers", job, cat(stragglers));
  if (level < MetricsLevel::kRanks) return text;
  const auto put = [&](std::string_view name, std::string_view type, std::string_view help,
                       const auto& value_of) {
    put_family(text, name, type, help);
    for (const auto& [rank, run] : ranks) {
      const std::string host = escape_label(run->host().name());
      put_sample(text, name, cat(job, ",host=\"", host, "\",rank=\"", rank, "\""),
                 number_text(value_of(*run->waits())));
    }
  };
  put("straggler", "gauge", "Whether the rank is late in most steps.",
      [](const RankWaits& each) { return each.is_straggler ? 1.0 : 0.0; });
  put("late_seconds_total", "counter", "Time in which others waited for the rank, in each step.",
      [](const RankWaits& each) { return each.late_seconds; });
  put("wait_seconds_total", "counter", "Time in which the rank waited for others, in each step.",
      [](const RankWaits& each) { return each.waited_seconds; });
  return text;
}

std::string JobMetrics::about_unread(const HostTable& hosts) {
  for (size_t i = 0; i < hosts_.size() && !has_notified_; ++i) {
    if (!hosts_[i].last) continue;
    if (const std::string& remark = hosts_[i].last->remark; !remark.empty()) {
      has_notified_ = true;
      return cat("host ", hosts.host(static_cast<int>(i)).name(), ": ", printable(remark));
    }
    for (const RankMetrics& rank : hosts_[i].last->ranks) {
      const int number = hosts.rank_of(rank.rank);
      if (number < 0 || rank.has_joined == 0 || rank.has_counters != 0) continue;
      has_notified_ = true;
      return cat("rank ", number, " on host ", hosts.host(static_cast<int>(i)).name(),
                 " counts where its agent cannot read: it is in a container with processes of its "
                 "own, or has a library of another version; metrics have only its processor time, "
                 "memory and I/O");
    }
  }
  return "";
}

}  // namespace hvd::launcher
