// Computes the number of ranks for which the hosts of an elastic job have slots, and the ranks and hosts that the job
// can lose. Generations calls it before it starts, ends or refuses hosts and ranks. Pure.
#pragma once

#include <set>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/elastic/discovery/host_pool.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/hosts/host_table.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

class Capacity {
 public:
  // The arguments outlive this object.
  Capacity(const GenerationLimits& limits, const HostPool& pool, const HostTable& hosts)
      : limits_(limits), pool_(pool), hosts_(hosts) {}

  // In slots: of the hosts that the job uses, and of these and those that a user has removed.
  int offered() const;
  int named() const;
  // Whether other processes than the present ones may come.
  bool may_grow() const;
  // Where the ranks may come from that a paused job lacks.
  std::string awaited_hosts(Clock::time_point now) const;
  // Whether the next generation would have this process, which is ready and no member.
  bool has_place_for(const RankRun& process) const;
  // The same as offered(), without these hosts.
  int offered_without(const std::set<std::string>& hosts) const;
  // Whether a rank stays after the next commit if these hosts leave.
  bool has_state_without(const std::set<std::string>& hosts) const;
  // A user leaves this host `slots` slots: without its others the job must keep its state and enough slots.
  // `what`: the part of the job that leaves, for the sentence.
  Status may_remove(const std::string& host, int slots, const std::string& what) const;

 private:
  int usable(const Host& host) const;

  const GenerationLimits& limits_;
  const HostPool& pool_;
  const HostTable& hosts_;
};

}  // namespace hvd::launcher
