// Reads the settings of an elastic job, and checks their consistency. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/allocation/host_pool.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

// The minimum size of the first generation, and the minimum and maximum size of later generations, in ranks.
struct RankLimits {
  int start = 1;           // -np; default --min-np
  int min = 1;             // --min-np; default -np
  std::optional<int> max;  // --max-np; default no limit
};
RankLimits rank_limits(const LaunchSettings& settings);

// Returns the seconds that a job waits for enough slots: --elastic-timeout, where 0 means the default.
double elastic_timeout(const LaunchSettings& settings);

// The value of --reset-limit, N or N/SECONDS: the maximum number of membership changes, in total or within a time.
struct ResetLimit {
  int64_t resets = 0;
  std::optional<double> seconds;
};
Result<ResetLimit> parse_reset_limit(std::string_view text);
// Returns nothing if --reset-limit is not set.
std::optional<ResetLimit> reset_limit(const LaunchSettings& settings);

// Returns the maximum number of restarts after failures (--max-restarts) of a program that cannot survive the failure
// of a rank; nullopt if the flag is not set.
std::optional<int> most_restarts(const LaunchSettings& settings);

// Parses the value of --blacklist-cooldown-range LO HI: "LO HI" or "LO,HI".
Result<CooldownRange> parse_cooldown_range(std::string_view text);
// Returns nothing if --blacklist-cooldown-range is not set.
std::optional<CooldownRange> cooldown_range(const LaunchSettings& settings);

// Checks that the settings of elastic jobs fit together; the error is a sentence for the user. `name_of`
// returns the user's spelling of a setting, by its key.
Status check_elastic(const LaunchSettings& settings,
                     const std::function<std::string(std::string_view key)>& name_of);

// The limits for the generations of an elastic job. All parts of Generations use these limits.
struct GenerationLimits {
  int least = 1;                 // minimum number of ranks; with fewer, the job pauses
  std::optional<int> most = {};  // maximum number of ranks
  double pause_seconds = 600;    // maximum length of a pause
  double return_seconds = 30;    // maximum time from the first place request to the last one
  double init_seconds = 600;     // the same for the first ranks
  std::optional<ResetLimit> resets = {};  // --reset-limit
  HostSource hosts = HostSource::kNamed;
  bool restarts_ranks = false;  // a failed rank is started again on its host
  // If the ranks have not entered hvd.elastic.run, the program is started again when the ranks change.
  bool restarts_programs = false;
  std::optional<int> most_restarts = {};  // maximum number of restarts after failures
  double cause_seconds = 3.5;  // a host lost within this time after a rank's exit may be the cause

  // Returns whether discovered() may be called again.
  bool finds_hosts() const { return hosts != HostSource::kNamed; }
  bool hosts_join() const { return hosts == HostSource::kJoining; }
};

}  // namespace hvd::launcher
