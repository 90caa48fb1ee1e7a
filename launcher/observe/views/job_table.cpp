#include "launcher/observe/views/job_table.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "launcher/plan/rank_set.h"
#include "launcher/terminal/color.h"
#include "launcher/terminal/launch_progress.h"
#include "launcher/terminal/terminal_text.h"

namespace hvd::launcher {
namespace {

using Cells = std::vector<std::string>;

constexpr size_t kGap = 2;

// The rank's share of a core since its start.
double mean_share(const RankView& rank) {
  return rank.cpu_seconds < 0 || rank.seconds < 0 ? -1
                                                  : rank.cpu_seconds / std::max(rank.seconds, 0.1);
}

Cells row_of(const JobView& job, const HostView& host, const RankView& rank, bool has_gpu_column,
             bool has_color) {
  const auto paint = [has_color](const std::string& text, std::string_view color) {
    return has_color ? colored(text, color) : text;
  };
  Cells row = {paint(rank.rank < 0 ? "-" : cat(rank.rank), rank_color(job, rank))};
  if (job.generation >= 0) row.push_back(cat(rank.process));
  row.push_back(paint(printable(host.name), host_color(host)));
  row.push_back(rank.pid < 0 ? "-" : cat(rank.pid));
  const bool is_lost = host.state == "lost" && !rank.is_over();
  row.push_back(paint(is_lost ? "lost" : state_text(rank), state_color(host, rank)));
  row.push_back(time_span(rank.seconds));
  row.push_back(percent(mean_share(rank)));
  row.push_back(size_text(static_cast<double>(rank.memory)));
  if (has_gpu_column) row.push_back(gpu_text(rank));
  row.push_back(printable(rank.waits_for));
  return row;
}

// "hosts ready 2/4; c: connect 3 s": while some are not; else empty.
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

// Processes that have left an elastic job are of its past.
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

std::string gpu_text(const RankView& rank) {
  if (!rank.has_gpu()) return "-";
  return cat(percent(rank.gpu_share), " ", size_text(static_cast<double>(rank.gpu_memory)));
}

bool has_gpus(const JobView& job) {
  return std::ranges::any_of(job.hosts, [](const HostView& host) {
    return std::ranges::any_of(host.ranks, &RankView::has_gpu);
  });
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
  const bool is_elastic = job.generation >= 0;
  const std::vector<const HostView*> hosts = present_hosts(job);
  const bool has_gpu_column = has_gpus(job);
  Cells head = {"RANK"};
  std::vector<bool> is_number = {true};
  const auto add = [&](const char* name, bool is_right) {
    head.emplace_back(name);
    is_number.push_back(is_right);
  };
  if (is_elastic) add("PROCESS", true);
  add("HOST", false);
  add("PID", true);
  add("STATE", false);
  add("ELAPSED", true);
  add("CPU", true);
  add("MEMORY", true);
  if (has_gpu_column) add("GPU", true);
  add("WAITS FOR", false);
  std::vector<std::pair<int, Cells>> rows;
  std::string silent;
  for (const HostView* const host : hosts) {
    for (const RankView& rank : host->ranks) {
      if (is_shown(rank, is_elastic))
        rows.emplace_back(rank.rank, row_of(job, *host, rank, has_gpu_column, has_color));
    }
    if (host->silence > 0)
      silent += cat("host ", colored(silence_text(*host), has_color ? kRed : ""), "\n");
  }
  // Ranks in their order, then processes that are no rank.
  std::ranges::stable_sort(rows, {},
                           [](const auto& row) { return static_cast<unsigned>(row.first); });
  std::vector<Cells> lines = {head};
  for (auto& [rank, row] : rows) lines.push_back(std::move(row));
  const std::string title = cat(
      "horovodrun, pid ", job.pid, ", ", is_elastic ? cat("generation ", job.generation, ", ") : "",
      count_of_ranks(job.size), ": ", printable(join(job.command, " "), std::string::npos));
  return cat(columns == 0 ? std::string_view(title) : cut(title, columns), "\n",
             aligned(lines, is_number, columns), start_line(hosts, columns), silent);
}

}  // namespace hvd::launcher
