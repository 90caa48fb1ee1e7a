// A job parsed from the output of `horovodrun ps --json`, and its table. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/output/launch_progress.h"

namespace hvd::launcher {

// A rank in the output. A member is absent, or -1, if the launcher has not received it from the agent.
struct RankView {
  int rank = -1;     // -1: a process of an elastic job that is not a rank
  int process = -1;  // -1: the job is not elastic
  std::string state{};
  std::optional<int> code{}, signal{};  // how the process ended
  bool is_stopped = false;
  int64_t pid = -1;
  double seconds = -1;  // time since its start
  double cpu_seconds = -1;
  double run_delay_seconds = -1;
  int64_t memory = -1;  // in bytes
  std::optional<uint64_t> steps{}, bytes{}, pending{};
  double step_seconds = -1;  // mean of the last steps
  double waited_share = -1;  // share of a step that the rank waited for other ranks
  double gpu_share = -1;     // share of time in which the rank's busiest GPU computed
  int64_t gpu_memory = -1;   // in bytes
  std::string waits_for{};

  bool is_over() const { return code || signal; }
  bool has_gpu() const { return gpu_share >= 0 || gpu_memory >= 0; }
};

struct HostView {
  std::string name{}, state{};
  std::string stage{};  // while the host connects
  double seconds = 0;   // time in the state or the stage
  double silence = 0;   // time since the host's last answer; 0 if it answers
  std::vector<RankView> ranks{};

  bool is_over() const { return state == "done" || state == "lost"; }
};

struct JobView {
  int64_t pid = 0;
  std::string name{};
  int64_t generation = -1;  // -1: the job is not elastic
  std::vector<std::string> command{};
  double seconds = 0;
  int64_t size = 0;  // number of ranks
  double read_at = -1;
  double step_age = -1;
  int slowest = -1;  // the rank for which the other ranks wait most, or -1
  double late_seconds = 0;
  std::vector<HostView> hosts{};
};

// `json`: one line of `horovodrun ps --json`.
Result<JobView> read_job(std::string_view json);

// The resources that a rank has used between two answers of its launcher, as shares of that time; -1: unknown.
struct RankRates {
  double cpu = -1;        // share of a core
  double run_delay = -1;  // time in which the rank's processes were runnable, but had no processor
};

class JobRates {
 public:
  void add(const JobView& job);
  RankRates of(const RankView& rank) const;
  const ProgressRates& job() const { return job_; }

 private:
  struct Look {
    int64_t pid = -1;
    double age = -1, cpu = -1, run_delay = -1;
  };
  // In an elastic job, the process number is the same over generations.
  static int key_of(const RankView& rank) { return rank.process >= 0 ? rank.process : rank.rank; }

  ProgressRates job_;
  std::map<int, Look> last_;
  std::map<int, RankRates> rates_;
};

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

// Returns the hosts, but not the ended entry of a host that has joined the job again.
std::vector<const HostView*> present_hosts(const JobView& job);
// Returns whether the host's agent is prepared, or was prepared before.
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
