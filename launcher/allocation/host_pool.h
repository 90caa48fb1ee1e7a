// The hosts that an elastic job may use: the named hosts without those that a user has removed. After a failure, a host
// may be used only from a later time on. The pool outlives a launch of the job. Pure: the caller passes the time and
// the random numbers.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

// The values of --blacklist-cooldown-range.
struct CooldownRange {
  double low = 0, high = 0;  // seconds
};

// The hosts whose ranks failed, and the time from which each may be used again. HostPool owns this object. Pure: the
// caller passes the time and the random numbers.
class HostCooldown {
 public:
  using Time = Clock::time_point;
  // Returns a number in [0, 1).
  using Random = std::function<double()>;

  // Without a `range`, a failed host is never used again.
  HostCooldown(std::optional<CooldownRange> range, Random random)
      : range_(range), random_(std::move(random)) {}

  struct Exclusion {
    int failures = 0;             // number of failures of this host, including this failure
    std::optional<double> delay;  // seconds; nullopt: until the job ends
  };

  // Call when a rank of the host, or the host itself, has failed. Returns nullopt if the host is already excluded, or
  // if the newest answer of discovery does not name it.
  std::optional<Exclusion> record_failure(std::string_view host, Time now);

  bool is_usable(std::string_view host, Time now) const;
  // Returns the earliest time at which is_usable() returns true.
  Time usable_from(std::string_view host) const;
  // Returns the earliest time after `now` at which an excluded host is usable again; nullopt: all exclusions last until
  // the job ends.
  std::optional<Time> next_return(Time now) const;

  // Takes the hosts of a new answer of discovery. Forgets the failures of hosts that the answer does not name. Not
  // called for HostSource::kNamed.
  void set_discovered(std::span<const std::string> hosts);

 private:
  struct Record {
    int failures = 0;
    Time until;  // Time::max(): until the job ends
  };

  const std::optional<CooldownRange> range_;
  const Random random_;
  std::optional<std::set<std::string, std::less<>>> discovered_;
  std::map<std::string, Record, std::less<>> records_;
};

// Returns "host b is not used again in this job, after a failure there; give --blacklist-cooldown-range ...", for
// example.
std::string about_exclusion(std::string_view host, const HostCooldown::Exclusion& exclusion);

// The source of an elastic job's hosts. It determines whether more hosts may come later.
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
    std::optional<CooldownRange> cooldown = {};  // nullopt: a failed host is excluded for ever
  };
  // `random`: as in HostCooldown.
  HostPool(const Rules& rules, HostCooldown::Random random);

  // Takes the current hosts, in their order.
  void discovered(std::vector<Host> hosts);
  const std::vector<Host>& named() const { return named_; }
  // Returns the named hosts without the hosts that a user has removed, with the slots that remain after users' orders.
  const std::vector<Host>& offered() const { return offered_; }

  std::optional<HostCooldown::Exclusion> exclude(const std::string& name, Time now);
  bool is_excluded_for_ever(const std::string& name) const;
  // Delays the next start on the host: by `first` seconds, and by twice the previous delay at each further call, up to
  // `most`. Returns the delay.
  std::chrono::seconds retry_later(const std::string& name, std::chrono::seconds first,
                                   std::chrono::seconds most, Time now);
  // Call when the job has made progress: retry_later() then treats the next failure of each host as its first.
  void forget_failures();
  // Delays the next start on the host until `time`. Does not raise the delays of retry_later().
  void retry_at(const std::string& name, Time time) { retries_[name].again = time; }
  bool may_start(const std::string& name, Time now) const;
  // Returns the earliest time at which may_start() returns true; Time::max(): never.
  Time usable_from(const std::string& name) const;
  // Returns the earliest time after `now` at which a host may start that may not start now; nullopt: none.
  std::optional<Time> next_start(Time now) const;

  // Reduces the host to this number of slots, because a user has requested it.
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
