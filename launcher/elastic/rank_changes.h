// Changes of the ranks that a user orders (horovodrun resize and remove), and hosts whose agents announce their end.
// Checks the orders and removes the hosts from the pool; ProgramPolicy changes the ranks. Class Generations owns this
// object. No I/O, no clock.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "launcher/elastic/elastic_core.h"

namespace hvd::launcher {

class RankChanges {
 public:
  using Time = Clock::time_point;
  explicit RankChanges(ElasticCore& core) : core_(core) {}

  // The following four functions implement functions of class Generations. `policy`: the current policy.
  Result<std::string> resize(int ranks, const ProgramPolicy& policy, Time now);
  Result<std::string> remove_host(const std::string& name, const ProgramPolicy& policy, Time now);
  Result<std::string> remove_rank(int64_t rank, const ProgramPolicy& policy, Time now);
  void host_leaves(HostRun& host, const std::string& why, double seconds,
                   const ProgramPolicy& policy, Time now);
  // Removes hosts that end soon from the pool when other hosts also have the state. The ranks of these hosts then
  // leave.
  void let_hosts_go(const ProgramPolicy& policy, Time now);

 private:
  Status may_change(Time now);
  void take_removed_back();
  std::string about_size(int ranks, const ProgramPolicy& policy, Time now) const;
  std::string until_used_again() const;
  void release_host(const HostRun& host, const ProgramPolicy& policy, Time now);

  ElasticCore& core_;
};

}  // namespace hvd::launcher
