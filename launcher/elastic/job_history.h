// The part of an elastic job that outlives its launch: a program without elastic.run is launched again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "launcher/elastic/discovery/host_pool.h"
#include "launcher/elastic/reset_history.h"

namespace hvd::launcher {

struct JobHistory {
  explicit JobHistory(HostPool hosts_of_job) : pool(std::move(hosts_of_job)) {}

  HostPool pool;
  std::optional<int> most;  // ranks, if a user has asked for a number
  ResetHistory resets;
  int restarts = 0;  // after failures
  Clock::time_point began = Clock::now();
  std::optional<Clock::time_point>
      waits_since;         // the job waits for hosts; unset while it has ranks
  int32_t generation = 0;  // the first one of the next launch
  // The hosts in the order of the last generation's ranks, and its failure, or empty.
  std::vector<std::string> hosts;
  std::string failure;
  int failure_code = 0;
};

}  // namespace hvd::launcher
