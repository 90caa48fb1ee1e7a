// Records the hosts whose ranks failed, and the time from which each host may be used again. A job has one such record.
// Pure: the caller passes the time and the random numbers.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace hvd::launcher {

// The values of --blacklist-cooldown-range.
struct CooldownRange {
  double low = 0, high = 0;  // seconds
};

class HostCooldown {
 public:
  using Time = Clock::time_point;
  // Returns a number in [0, 1).
  using Random = std::function<double()>;

  // Without a `range`, a failed host is never used again.
  HostCooldown(std::optional<CooldownRange> range, Random random)
      : range_(range), random_(std::move(random)) {}

  // A failure that excludes the host.
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
  // Returns the earliest time after `now` at which an excluded host is usable again; nullopt: no excluded host returns.
  std::optional<Time> next_return(Time now) const;

  // Takes the hosts of a new answer of discovery. Deletes the failures of hosts that the answer does not name, so that
  // a host that returns later starts without failures. Not called if the hosts are fixed.
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

// Returns "host b is not used again in this job, since a rank failed there;
// --blacklist-cooldown-range LO HI ...", for example.
std::string about_exclusion(std::string_view host, const HostCooldown::Exclusion& exclusion);

}  // namespace hvd::launcher
