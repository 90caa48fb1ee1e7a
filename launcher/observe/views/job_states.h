// The states of a job's hosts and ranks as JSON, for `horovodrun ps`, `top`, and /status of the job's store. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
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
  int pid = 0;                         // pid of the launcher
  std::vector<std::string> command{};  // command of the ranks
  std::string name{};                  // --name, or empty
  double seconds = 0;                  // time since the job began
  // When the figures of ranks were read, in seconds since the job began; -1: never.
  double read_at = -1;
  double step_age = -1;  // seconds since the last training step of any rank; -1: unknown
  std::optional<SlowestRank> slowest{};
  // Returns the figures of a rank of the table; null if its agent has not answered.
  std::function<const RankMetrics*(int number)> rank{};
  // Returns the ranks for which the rank `number` waits in hvd.init(). All are numbers in the table.
  std::function<std::vector<int>(int number)> init_wait{};
  // Returns the ranks for which this rank waits because they announce fewer operations, as formatted by
  // name_of_ranks(); may be empty.
  std::function<std::string(int rank)> operation_wait{};
  // Returns for how many seconds a host has not answered; 0 if it answers.
  std::function<double(const HostRun& host)> silence{};
};

// The states are the names of HostState and RankState. `seconds` is the time in a state, or in a stage while the host
// connects. In an elastic job, each rank of the table is a process with its own number, and `rank` is absent for a
// process that is not a rank.
//
// [{"host":"a","state":"running","seconds":12.3,"ranks":[{"rank":0,"state":"in_job"},
//   {"rank":1,"state":"ended","code":3}]}]
std::string hosts_as_json(const HostTable& hosts);
// {"pid":4711,"generation":2,"command":["python3","train.py"],"seconds":131.2,"size":4,"hosts":[...]} in one line.
// docs/inspection.md describes the members.
std::string job_as_json(const HostTable& hosts, const JobFigures& figures);

// Replaces process numbers by ranks in an agent's text about an elastic job. Each paragraph of the text begins with
// "rank N" (N: number in the table). The result has "rank 1 (process 3)", or "process 3, not a rank".
std::string with_present_ranks(std::string_view text, const HostTable& hosts);

}  // namespace hvd::launcher
