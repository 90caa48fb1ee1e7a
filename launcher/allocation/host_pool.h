// The hosts that an elastic job may use: the named hosts except hosts that a user has removed, each with the time from
// which it may be used after a failure. The pool outlives a launch of the job. Pure: the caller passes the time and the
// random numbers.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/allocation/host_cooldown.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

// The source of an elastic job's hosts, which determines whether more hosts may come later.
enum class HostSource {
  kNamed,    // flags, a file or a scheduler have named all hosts
  kScript,   // a discovery script names the hosts again and again while the job runs
  kJoining,  // agents join by themselves, and each starts processes only once
};

class HostPool {
 public:
  using Time = HostCooldown::Time;

  struct Rules {
    HostSource hosts = HostSource::kNamed;
    std::optional<CooldownRange> cooldown = {};  // exclusion after a rank failed on the host
  };
  // `random`: as in HostCooldown.
  HostPool(const Rules& rules, HostCooldown::Random random);

  // Takes the current hosts, in their order.
  void discovered(std::vector<Host> hosts);
  const std::vector<Host>& named() const { return named_; }
  // Returns the named hosts without the hosts that a user has removed, with the slots that remain after users' orders.
  const std::vector<Host>& offered() const { return offered_; }

  // Calls HostCooldown::record_failure().
  std::optional<HostCooldown::Exclusion> exclude(const std::string& name, Time now);
  bool is_excluded_for_ever(const std::string& name) const;
  // Delays the next start on the host: by `first` seconds the first time, and by twice the previous delay each further
  // time, up to `most`. Returns the delay.
  std::chrono::seconds retry_later(const std::string& name, std::chrono::seconds first,
                                   std::chrono::seconds most, Time now);
  // Call when the job has made progress: retry_later() then treats the next failure of each host as its first.
  void forget_failures();
  // Delays the next start on the host until `time`. Does not raise the delays of retry_later().
  void retry_at(const std::string& name, Time time) { retries_[name].again = time; }
  bool may_start(const std::string& name, Time now) const;
  // Returns the time from which may_start() returns true. Time::max(): never.
  Time usable_from(const std::string& name) const;
  // Returns the earliest time after `now` at which another host may start; nothing: no host will.
  std::optional<Time> next_start(Time now) const;

  // Reduces the host to this number of slots, on the order of a user.
  void remove(const std::string& name, int slots);
  bool has_removals() const { return !removals_.empty(); }
  // Undoes all removals except those of hosts for which `stays` returns true.
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
  std::map<std::string, int>
      removals_;  // by host: the number of slots that remain after a user's order
  std::map<std::string, Retry> retries_;
};

}  // namespace hvd::launcher
