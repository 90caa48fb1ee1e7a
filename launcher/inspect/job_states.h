// The states of a job's hosts and ranks as JSON, for `horovodrun ps --json` and /status of the job's store. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/hosts/host_table.h"

namespace hvd::launcher {

// The states are the names of HostState and RankState; `seconds` is the time in a state, or in its stage while the
// host connects. In a job with a generation, each rank of the table is a process with a number of its own, and
// `rank` is absent for a process that is no rank.
struct JobStates {
  int32_t generation = -1;  // -1: the numbers of the table are the ranks
  // The present rank of a rank of the table, or -1.
  std::function<int(int number)> rank_of;
};

// [{"host":"a","state":"running","seconds":12.3,"ranks":[{"rank":0,"state":"in_job"},
//   {"rank":1,"state":"ended","code":3}]}]
std::string hosts_as_json(const HostTable& hosts, const JobStates& job);
// {"pid":4711,"generation":2,"command":["python3","train.py"],"hosts":[...]} in one line.
std::string job_as_json(int pid, const std::vector<std::string>& command, const HostTable& hosts,
                        const JobStates& job);

}  // namespace hvd::launcher
