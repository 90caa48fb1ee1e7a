// A job parsed from the output of `horovodrun ps --json`, for the commands that show it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

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
  double waited_share = -1;  // share of a step until all ranks had agreed
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

}  // namespace hvd::launcher
