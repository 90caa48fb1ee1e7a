// Computes how many ranks the hosts of an elastic job can run, and which ranks and hosts the job can lose. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/allocation/host_pool.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/hosts/host_table.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

// The following functions read the table. Their counts omit processes that have ended or are being ended.
int live_processes(const HostTable& hosts);
// Omits processes that a user has removed.
int live_processes(const HostTable& hosts, const std::string& host);
int staying_processes(const HostTable& hosts);  // on hosts that do not leave
int live_members(const HostTable& hosts);
int staying_members(const HostTable& hosts);  // without ranks that must leave
int members_of(const HostTable& hosts, const std::string& host);
// Returns whether a rank of the current generation is being ended, but still runs. Such a rank may still save its work.
bool has_ending_member(const HostTable& hosts);
// Returns whether a rank with the training state remains.
bool has_survivor(const HostTable& hosts);
bool all_have_asked(const HostTable& hosts);
// Returns free slots for `count` further processes on the host `name`. The host will be the next entry of the table.
std::vector<Slot> places_on(const HostTable& hosts, const std::string& name, int count);

class Capacity {
 public:
  // The arguments must outlive this object.
  Capacity(const GenerationLimits& limits, const HostPool& pool, const HostTable& hosts)
      : limits_(limits), pool_(pool), hosts_(hosts) {}

  // offered(): the slots of the hosts that the job uses. named(): these slots, plus the slots that a user has removed.
  int offered() const;
  int named() const;
  // Returns whether the job may get more processes than it has now.
  bool may_grow() const;
  // Returns a text with the hosts from which a paused job may get the ranks that it lacks.
  std::string awaited_hosts(Clock::time_point now) const;
  // Returns whether this process, which is not a rank yet, is ready and has a place in the next generation.
  bool has_place_for(const RankRun& process) const;
  // Returns the slots of offered() without these hosts.
  int offered_without(const std::set<std::string>& hosts) const;
  // Returns whether a rank with the state stays after the next commit if these hosts leave.
  bool has_state_without(const std::set<std::string>& hosts) const;
  // Returns an error if a user may not reduce this host to `slots` slots, because the job must keep its state and
  // enough slots.
  // `what`: the part of the job that leaves, for the error.
  Status may_remove(const std::string& host, int slots, const std::string& what) const;

 private:
  int usable(const Host& host) const;

  const GenerationLimits& limits_;
  const HostPool& pool_;
  const HostTable& hosts_;
};

}  // namespace hvd::launcher
