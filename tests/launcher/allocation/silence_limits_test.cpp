#include "launcher/allocation/silence_limits.h"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

namespace hvd::launcher {
namespace {

LaunchSettings settings_with(const std::vector<std::pair<const char*, const char*>>& values) {
  Settings settings;
  for (const auto& [key, value] : values) CHECK(settings.set(key, value).ok());
  return LaunchSettings(settings);
}

void check(const LaunchSettings& settings, bool is_step, double host_timeout, double lease) {
  const SilenceLimits limits = silence_limits(settings, is_step);
  CHECK(limits.host_timeout_seconds == host_timeout);
  CHECK(limits.lease_seconds == lease);
}

}  // namespace

TEST_CASE("the limits of a job by its kind: a short host timeout leaves the lease as it is") {
  check({}, false, 45, 45);
  check({}, true, 12, 45);
  check(settings_with({{"min_num_proc", "1"}}), false, 3, 45);
  check(settings_with({{"min_num_proc", "1"}}), true, 3, 45);
  check(settings_with({{"host_timeout", "120"}}), false, 120, 45);
  check(settings_with({{"host_timeout", "120"}}), true, 120, 45);
  check(settings_with({{"host_timeout", "10"}}), false, 10, 45);
  check(settings_with({{"min_num_proc", "1"}, {"host_timeout", "20"}}), false, 20, 45);
  check(settings_with({{"min_num_proc", "1"}, {"lease", "21"}}), false, 3, 21);
  // A lease alone sets both in other jobs.
  for (const bool is_step : {false, true}) {
    check(settings_with({{"lease", "7"}}), is_step, 7, 7);
    check(settings_with({{"lease", "90"}}), is_step, 90, 90);
  }
  check(settings_with({{"lease", "7"}, {"host_timeout", "20"}}), false, 20, 7);
}

}  // namespace hvd::launcher
