// The hosts that an elastic job may use: the named hosts, except hosts that a user has removed, each with the time from
// which it may be used after a failure. Outlives a launch of the job. Pure: the caller passes the time and the random
// numbers.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/elastic/discovery/host_cooldown.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

// The source of the hosts of an elastic job, which determines whether other hosts may come later.
enum class HostSource {
  kNamed,    // flags, a file or a scheduler have named all of them
  kScript,   // a discovery script names them anew while the job runs
  kJoining,  // agents join by themselves; each starts its processes once
};

class HostPool {
 public:
  using Time = HostCooldown::Time;

  struct Rules {
    HostSource hosts = HostSource::kNamed;
    std::optional<CooldownRange> cooldown = {};  // how long a host is out on which a rank failed
  };
  // `random`: as HostCooldown's.
  HostPool(const Rules& rules, HostCooldown::Random random);

  // The hosts that there are now, in their order.
  void discovered(std::vector<Host> hosts);
  const std::vector<Host>& named() const { return named_; }
  // The named hosts without those that a user has removed, each with the slots that a user has left it.
  const std::vector<Host>& offered() const { return offered_; }

  // As HostCooldown::record_failure().
  std::optional<HostCooldown::Exclusion> exclude(const std::string& name, Time now);
  bool is_excluded_for_ever(const std::string& name) const;
  // The host is tried again after `first` seconds, and after twice the last wait each further time, up to
  // `most`. Returns the wait.
  std::chrono::seconds retry_later(const std::string& name, std::chrono::seconds first,
                                   std::chrono::seconds most, Time now);
  // The job has made progress: the next failure of a host is its first one for retry_later().
  void forget_failures();
  // The host is tried again at this time. This is no failure.
  void retry_at(const std::string& name, Time time) { retries_[name].again = time; }
  bool may_start(const std::string& name, Time now) const;
  // may_start() from then on. Time::max(): never.
  Time usable_from(const std::string& name) const;
  // The earliest time after `now` at which another host may start; nothing: at no time.
  std::optional<Time> next_start(Time now) const;

  // A user leaves the host this number of slots.
  void remove(const std::string& name, int slots);
  bool has_removals() const { return !removals_.empty(); }
  // Undoes the removals, except of hosts for which `stays` returns true.
  void take_back(const std::function<bool(const std::string& name)>& stays);

 private:
  struct Retry {
    int failures = 0;
    Time again{};
  };
  void leave_out_removed();

  const Rules rules_;
  HostCooldown cooldown_;
  std::vector<Host> named_, offered_;
  std::map<std::string, int> removals_;  // how many slots a user has left the host
  std::map<std::string, Retry> retries_;
};

}  // namespace hvd::launcher
