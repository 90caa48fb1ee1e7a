// Reads the settings of an elastic job, one whose hosts come and go, and checks that they fit together.
// Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "launcher/elastic/discovery/host_cooldown.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

// The number of ranks of the first generation, of every later one, and the largest one.
struct RankLimits {
  int start = 1;           // -np; default --min-np
  int min = 1;             // --min-np; default -np
  std::optional<int> max;  // --max-np; default no limit
};
// For an elastic job.
RankLimits rank_limits(const LaunchSettings& settings);

// Seconds that a job waits for enough slots: --elastic-timeout, where 0 means the default.
double elastic_timeout(const LaunchSettings& settings);

// --reset-limit N or N/SECONDS: how often the membership may change, in all or in a time.
struct ResetLimit {
  int64_t resets = 0;
  std::optional<double> seconds;
};
Result<ResetLimit> parse_reset_limit(std::string_view text);
// Nothing without the flag.
std::optional<ResetLimit> reset_limit(const LaunchSettings& settings);

// How often a program that does not survive the failure of a rank is started again: --max-restarts.
// Nothing without the flag.
std::optional<int> most_restarts(const LaunchSettings& settings);

// --blacklist-cooldown-range LO HI, as "LO HI" or "LO,HI".
Result<CooldownRange> parse_cooldown_range(std::string_view text);
// Nothing without the flag.
std::optional<CooldownRange> cooldown_range(const LaunchSettings& settings);

// The sentence about settings that do not fit together, as far as they are about elastic jobs. `name_of`
// returns the user's spelling of a setting, by its key.
Status check_elastic(const LaunchSettings& settings,
                     const std::function<std::string(std::string_view key)>& name_of);

}  // namespace hvd::launcher
