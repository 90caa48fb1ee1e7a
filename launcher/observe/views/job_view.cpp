#include "launcher/observe/views/job_view.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "launcher/output/launch_progress.h"
#include "launcher/output/terminal_text.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
std::optional<T> maybe(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? std::nullopt : std::optional<T>(found->get<T>());
}

RankView read_rank(const Json& json) {
  RankView rank;
  rank.rank = json.value("rank", -1);
  rank.process = json.value("process", -1);
  rank.state = json.at("state").get<std::string>();
  rank.code = maybe<int>(json, "code");
  rank.signal = maybe<int>(json, "signal");
  rank.is_stopped = json.value("stopped", false);
  rank.pid = json.value("pid", int64_t{-1});
  rank.seconds = json.value("seconds", -1.0);
  rank.cpu_seconds = json.value("cpu_seconds", -1.0);
  rank.run_delay_seconds = json.value("run_delay_seconds", -1.0);
  rank.memory = json.value("memory", int64_t{-1});
  rank.steps = maybe<uint64_t>(json, "steps");
  rank.bytes = maybe<uint64_t>(json, "bytes");
  rank.pending = maybe<uint64_t>(json, "pending");
  rank.step_seconds = json.value("step_seconds", -1.0);
  rank.waited_share = json.value("waited_share", -1.0);
  rank.gpu_share = json.value("gpu_share", -1.0);
  rank.gpu_memory = json.value("gpu_memory", int64_t{-1});
  rank.waits_for = json.value("waits_for", std::string());
  return rank;
}

HostView read_host(const Json& json) {
  HostView host;
  host.name = json.at("host").get<std::string>();
  host.state = json.at("state").get<std::string>();
  host.stage = json.value("stage", std::string());
  host.seconds = json.value("seconds", 0.0);
  host.silence = json.value("silence", 0.0);
  for (const Json& rank : json.at("ranks")) host.ranks.push_back(read_rank(rank));
  return host;
}

JobView read_whole_job(const Json& json) {
  JobView job;
  job.pid = json.at("pid").get<int64_t>();
  job.name = json.value("name", std::string());
  job.generation = json.value("generation", int64_t{-1});
  job.command = json.at("command").get<std::vector<std::string>>();
  job.seconds = json.value("seconds", 0.0);
  for (const Json& host : json.at("hosts")) job.hosts.push_back(read_host(host));
  job.size = json.value("size", int64_t{0});
  job.read_at = json.value("read_at", -1.0);
  job.step_age = json.value("step_age", -1.0);
  if (const auto slowest = json.find("slowest"); slowest != json.end()) {
    job.slowest = slowest->at("rank").get<int>();
    job.late_seconds = slowest->at("late_seconds").get<double>();
  }
  return job;
}

double share(double before, double now, double seconds) {
  return before < 0 || now < before ? -1 : (now - before) / seconds;
}

using Cells = std::vector<std::string>;

constexpr size_t kGap = 2;

// Returns the rank's share of a core since its start.
double mean_share(const RankView& rank) {
  return rank.cpu_seconds < 0 || rank.seconds < 0 ? -1
                                                  : rank.cpu_seconds / std::max(rank.seconds, 0.1);
}

bool is_elastic(const JobView& job) { return job.generation >= 0; }

// Returns a text like "97% 12G".
std::string gpu_text(const RankLine& line) {
  if (!line.rank->has_gpu()) return "-";
  return cat(percent(line.rank->gpu_share), " ",
             size_text(static_cast<double>(line.rank->gpu_memory)));
}

bool has_gpus(const JobView& job) {
  return std::ranges::any_of(job.hosts, [](const HostView& host) {
    return std::ranges::any_of(host.ranks, &RankView::has_gpu);
  });
}

std::string ps_state(const RankLine& line) {
  const bool is_lost = line.host->state == "lost" && !line.rank->is_over();
  return paint(is_lost ? "lost" : state_text(*line.rank), state_color(*line.host, *line.rank),
               line.has_color);
}

// Returns "hosts ready 2/4; c: connect 3 s" while some hosts are not ready; else an empty text.
std::string start_line(const std::vector<const HostView*>& hosts, size_t columns) {
  std::vector<HostProgress> progress;
  for (const HostView* const host : hosts) {
    if (host->is_over()) continue;
    const bool is_ready = is_past_start(*host);
    progress.push_back(
        {printable(host->name), printable(stage_text(*host)), host->seconds, is_ready});
  }
  const bool is_whole = std::ranges::all_of(progress, &HostProgress::is_ready);
  constexpr size_t kWithoutEnd = 1000;
  return is_whole ? "" : cat(progress_line(progress, columns == 0 ? kWithoutEnd : columns), "\n");
}

// Returns false for processes that have left an elastic job.
bool is_shown(const RankView& rank, bool is_elastic) {
  return !is_elastic || rank.rank >= 0 || !rank.is_over();
}

}  // namespace

Result<JobView> read_job(std::string_view json) {
  try {
    return read_whole_job(Json::parse(json));
  } catch (const Json::exception&) {
    return invalid_argument("the answer of the launcher is not one of this release");
  }
}

void JobRates::add(const JobView& job) {
  const auto before = std::exchange(last_, {});
  const auto rates = std::exchange(rates_, {});
  ProgressRates::Counts counts;
  for (const HostView& host : job.hosts) {
    for (const RankView& rank : host.ranks) {
      counts.steps = std::max(counts.steps, rank.steps.value_or(0));
      counts.bytes += rank.bytes.value_or(0);
      counts.ranks += rank.bytes ? 1 : 0;
      const int key = key_of(rank);
      last_[key] = {rank.pid, rank.seconds, rank.cpu_seconds, rank.run_delay_seconds};
      const auto last = before.find(key);
      if (last == before.end() || last->second.pid != rank.pid) continue;
      // The figures have not changed if another viewer requested them shortly before.
      const double seconds = rank.seconds - last->second.age;
      if (seconds > 0)
        rates_[key] = {.cpu = share(last->second.cpu, rank.cpu_seconds, seconds),
                       .run_delay = share(last->second.run_delay, rank.run_delay_seconds, seconds)};
      else if (const auto known = rates.find(key); known != rates.end())
        rates_.insert(*known);
    }
  }
  // The launcher may have read the counts a moment before it answered.
  const std::chrono::duration<double> read_at(job.read_at < 0 ? job.seconds : job.read_at);
  job_.add(Clock::time_point(std::chrono::duration_cast<Clock::duration>(read_at)), counts);
}

RankRates JobRates::of(const RankView& rank) const {
  const auto found = rates_.find(key_of(rank));
  return found == rates_.end() ? RankRates{} : found->second;
}

std::string aligned(const std::vector<Cells>& rows, const std::vector<bool>& is_number,
                    size_t columns) {
  std::vector<size_t> widths;
  for (const Cells& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], colored_width_of(row[i]));
  }
  std::string text;
  for (const Cells& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - colored_width_of(row[i]), ' ');
      const bool is_right = i < is_number.size() && is_number[i];
      line += cat(i == 0 ? "" : std::string(kGap, ' '), is_right ? space : "", row[i],
                  is_right ? "" : space);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += cat(columns == 0 ? line : cut_colored(line, columns), "\n");
  }
  return text;
}

std::string paint(const std::string& text, std::string_view color, bool has_color) {
  return has_color ? colored(text, color) : text;
}

const RankColumn kRankColumn = {"RANK", true, [](const RankLine& line) {
                                  return paint(line.rank->rank < 0 ? "-" : cat(line.rank->rank),
                                               rank_color(*line.job, *line.rank), line.has_color);
                                }};
const RankColumn kHostColumn = {"HOST", false, [](const RankLine& line) {
                                  return paint(printable(line.host->name), host_color(*line.host),
                                               line.has_color);
                                }};
const RankColumn kPidColumn = {"PID", true, [](const RankLine& line) {
                                 return line.rank->pid < 0 ? std::string("-") : cat(line.rank->pid);
                               }};
const RankColumn kMemoryColumn = {"MEMORY", true, [](const RankLine& line) {
                                    return size_text(static_cast<double>(line.rank->memory));
                                  }};
const RankColumn kGpuColumn = {"GPU", true, gpu_text, has_gpus};
const RankColumn kWaitColumn = {
    "WAITS FOR", false, [](const RankLine& line) { return printable(line.rank->waits_for); }};

std::string table_of(std::span<const RankColumn> columns, const JobView& job,
                     const std::vector<RankLine>& lines, size_t width) {
  std::vector<Cells> rows(lines.size() + 1);
  std::vector<bool> is_number;
  for (const RankColumn& column : columns) {
    if (column.is_shown != nullptr && !column.is_shown(job)) continue;
    is_number.push_back(column.is_number);
    rows[0].emplace_back(column.title);
    for (size_t i = 0; i < lines.size(); ++i) rows[i + 1].push_back(column.cell(lines[i]));
  }
  return aligned(rows, is_number, width);
}

std::vector<const HostView*> present_hosts(const JobView& job) {
  std::vector<const HostView*> hosts;
  for (size_t i = 0; i < job.hosts.size(); ++i) {
    const HostView& host = job.hosts[i];
    const bool has_begun_again =
        host.is_over() &&
        std::any_of(job.hosts.begin() + static_cast<std::ptrdiff_t>(i) + 1, job.hosts.end(),
                    [&host](const HostView& other) { return other.name == host.name; });
    if (!has_begun_again) hosts.push_back(&host);
  }
  return hosts;
}

bool is_past_start(const HostView& host) {
  return host.state != "planned" && host.state != "connecting" && host.state != "preparing";
}

std::string stage_text(const HostView& host) {
  if (!host.stage.empty()) return host.stage;
  return host.state == "preparing" ? "prepare" : host.state;
}

std::string state_text(const RankView& rank) {
  if (rank.signal) return cat("signal ", *rank.signal);
  if (rank.code) return cat("exit ", *rank.code);
  return rank.is_stopped ? "stopped" : printable(rank.state);
}

std::string silence_text(const HostView& host) {
  return cat(printable(host.name), ": no answer for ", static_cast<int64_t>(host.silence), " s");
}

std::string_view host_color(const HostView& host) {
  return host.state == "lost" || host.silence > 0 ? kRed : "";
}

std::string_view rank_color(const JobView& job, const RankView& rank) {
  return job.slowest >= 0 && rank.rank == job.slowest ? kYellow : "";
}

std::string_view state_color(const HostView& host, const RankView& rank) {
  const bool is_bad =
      rank.signal || (rank.code ? *rank.code != 0 : rank.is_stopped || host.state == "lost");
  return is_bad ? kRed : "";
}

std::string job_as_table(const JobView& job, size_t columns, bool has_color) {
  const std::vector<const HostView*> hosts = present_hosts(job);
  std::vector<RankLine> lines;
  std::string silent;
  for (const HostView* const host : hosts) {
    for (const RankView& rank : host->ranks) {
      if (is_shown(rank, is_elastic(job))) lines.push_back({&job, host, &rank, has_color});
    }
    if (host->silence > 0)
      silent += cat("host ", colored(silence_text(*host), has_color ? kRed : ""), "\n");
  }
  // Sorts ranks in ascending order, then processes that are not ranks.
  std::ranges::stable_sort(
      lines, {}, [](const RankLine& line) { return static_cast<unsigned>(line.rank->rank); });
  const std::array ps_columns = {
      kRankColumn,
      RankColumn{"PROCESS", true, [](const RankLine& line) { return cat(line.rank->process); },
                 is_elastic},
      kHostColumn,
      kPidColumn,
      RankColumn{"STATE", false, ps_state},
      RankColumn{"ELAPSED", true,
                 [](const RankLine& line) { return time_span(line.rank->seconds); }},
      RankColumn{"CPU", true, [](const RankLine& line) { return percent(mean_share(*line.rank)); }},
      kMemoryColumn,
      kGpuColumn,
      kWaitColumn};
  const std::string title =
      cat("horovodrun, pid ", job.pid, ", ",
          is_elastic(job) ? cat("generation ", job.generation, ", ") : "", count_of_ranks(job.size),
          ": ", printable(join(job.command, " "), std::string::npos));
  return cat(columns == 0 ? std::string_view(title) : cut(title, columns), "\n",
             table_of(ps_columns, job, lines, columns), start_line(hosts, columns), silent);
}

}  // namespace hvd::launcher
