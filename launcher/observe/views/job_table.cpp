#include "launcher/observe/views/job_table.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "launcher/output/launch_progress.h"
#include "launcher/output/terminal_text.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {
namespace {

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
