// Formats a job as the table of `horovodrun ps`; `top` uses parts of it. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/observe/views/job_view.h"
#include "launcher/observe/views/rank_rates.h"

namespace hvd::launcher {

// Returns "horovodrun, pid 4711, 2 ranks: python3 train.py", a line for each rank, a line for starting hosts, and a
// line for each host that does not answer. `columns`: the maximum width of lines; 0: no limit. `has_color`: uses
// host_color(), rank_color() and state_color().
std::string job_as_table(const JobView& job, size_t columns, bool has_color = false);

// Formats lines with columns as wide as needed. The columns in `is_number` are right-aligned. Cells may contain colors.
std::string aligned(const std::vector<std::vector<std::string>>& rows,
                    const std::vector<bool>& is_number, size_t columns);

std::string paint(const std::string& text, std::string_view color, bool has_color);

// A rank as a line of ps or top.
struct RankLine {
  const JobView* job;
  const HostView* host;
  const RankView* rank;
  bool has_color = false;
  RankRates rates{};  // only for top
};
struct RankColumn {
  const char* title;
  bool is_number;
  std::string (*cell)(const RankLine& line);
  bool (*is_shown)(const JobView& job) = nullptr;  // null: always shown
};
// Columns of both ps and top.
extern const RankColumn kRankColumn, kHostColumn, kPidColumn, kMemoryColumn, kGpuColumn,
    kWaitColumn;
std::string table_of(std::span<const RankColumn> columns, const JobView& job,
                     const std::vector<RankLine>& lines, size_t width);

// Returns the hosts without ended hosts that have joined the job again.
std::vector<const HostView*> present_hosts(const JobView& job);
// Returns whether the host's agent is prepared, or was prepared earlier.
bool is_past_start(const HostView& host);
// Returns the current stage of a starting host: "authenticate", "prepare".
std::string stage_text(const HostView& host);
// Returns "in_job", "stopped", "exit 3" or "signal 9".
std::string state_text(const RankView& rank);
// Returns "b: no answer for 3 s".
std::string silence_text(const HostView& host);

// Returns a color of launcher/output/terminal_text.h, or an empty text: red if the host is lost or does not answer.
std::string_view host_color(const HostView& host);
// Returns the color of a rank's number: yellow for the slowest rank.
std::string_view rank_color(const JobView& job, const RankView& rank);
// Returns the color of a rank's state: red if the rank is stopped or has failed, or if its host is lost.
std::string_view state_color(const HostView& host, const RankView& rank);

}  // namespace hvd::launcher
