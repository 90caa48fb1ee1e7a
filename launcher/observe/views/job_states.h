// The states of a job's hosts and ranks as JSON, for `horovodrun ps`, `top`, and /status of the job's store. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/hosts/host_table.h"
#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

// The rank that other ranks wait for most, and how long they wait in a training step.
struct SlowestRank {
  int rank = 0;
  double late_seconds = 0;
};

// Figures that `ps` and `top` show beside the states.
struct JobFigures {
  int pid = 0;                         // of the launcher
  std::vector<std::string> command{};  // command of the ranks
  std::string name{};                  // --name, or empty
  double seconds = 0;                  // time since the job began
  double read_at = -1;   // seconds of the job at which the figures of ranks were read; -1: never
  double step_age = -1;  // seconds since the last training step of any rank; -1: unknown
  std::optional<SlowestRank> slowest{};
  // Returns the figures of a rank of the table; null if its agent has not answered.
  std::function<const RankMetrics*(int number)> rank{};
  // Returns the ranks of the table for which a rank of the table waits in hvd.init().
  std::function<std::vector<int>(int number)> init_wait{};
  // Returns the ranks that announce fewer operations than this rank, which waits for them, in the format of
  // name_of_ranks(); or empty.
  std::function<std::string(int rank)> operation_wait{};
  // Returns the seconds for which a host has not answered; 0: it answers.
  std::function<double(const HostRun& host)> silence{};
};

// The states are the names of HostState and RankState; `seconds` is the time in a state, or in its stage while the
// host connects. In a job with a generation, each rank of the table is a process with a number of its own, and
// `rank` is absent for a process that is not a rank.
//
// [{"host":"a","state":"running","seconds":12.3,"ranks":[{"rank":0,"state":"in_job"},
//   {"rank":1,"state":"ended","code":3}]}]
std::string hosts_as_json(const HostTable& hosts);
// {"pid":4711,"generation":2,"command":["python3","train.py"],"seconds":131.2,"size":4,"hosts":[...]} in one line.
// docs/inspection.md describes the members.
std::string job_as_json(const HostTable& hosts, const JobFigures& figures);

}  // namespace hvd::launcher
