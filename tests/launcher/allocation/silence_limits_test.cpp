#include "launcher/allocation/silence_limits.h"

#include <doctest/doctest.h>

namespace hvd::launcher {
namespace {

LaunchSettings settings_with(const std::vector<std::pair<const char*, const char*>>& values) {
  Settings settings;
  for (const auto& [key, value] : values) CHECK(settings.set(key, value).ok());
  return LaunchSettings(settings);
}

std::string flag_name(std::string_view key) { return setting(key).flags; }
std::string variable_name(std::string_view key) { return setting(key).variable; }

void check(const LaunchSettings& settings, bool is_step, double host_timeout, double lease) {
  const SilenceLimits limits = silence_limits(settings, is_step);
  CHECK(limits.host_timeout_seconds == host_timeout);
  CHECK(limits.lease_seconds == lease);
}

}  // namespace

TEST_CASE("the limits of a job by its kind, and the lease is never the longer one") {
  check({}, false, 45, 45);
  check({}, true, 12, 12);
  check(settings_with({{"min_num_proc", "1"}}), false, 3, 3);
  check(settings_with({{"min_num_proc", "1"}}), true, 3, 3);
  check(settings_with({{"host_timeout", "120"}}), false, 120, 45);
  check(settings_with({{"host_timeout", "120"}}), true, 120, 12);
  check(settings_with({{"host_timeout", "10"}}), false, 10, 10);
  check(settings_with({{"min_num_proc", "1"}, {"host_timeout", "20"}}), false, 20, 20);
  // A lease alone sets both.
  for (const bool is_step : {false, true}) {
    check(settings_with({{"lease", "7"}}), is_step, 7, 7);
    check(settings_with({{"lease", "90"}}), is_step, 90, 90);
  }
  check(settings_with({{"lease", "7"}, {"host_timeout", "20"}}), false, 20, 7);
}

TEST_CASE("a given lease that is longer than the host timeout is refused") {
  for (const auto& settings : {settings_with({{"lease", "20"}, {"host_timeout", "20"}}),
                               settings_with({{"lease", "20"}}), LaunchSettings()}) {
    CHECK(check_silence_limits(settings, flag_name).ok());
    CHECK(about_lowered_lease(settings).empty());
  }
  const auto longer = settings_with({{"lease", "21"}, {"host_timeout", "20"}});
  CHECK(check_silence_limits(longer, flag_name).message() ==
        "--lease 21 is longer than --host-timeout 20: ranks of a lost host would run beside those "
        "that replace them; raise --host-timeout, or lower --lease");
  const auto elastic = settings_with({{"lease", "21"}, {"min_num_proc", "1"}});
  CHECK(check_silence_limits(elastic, flag_name)
            .message()
            .starts_with(
                "--lease 21 is longer than --host-timeout 3 (the default of an elastic job): "));
}

TEST_CASE("a lease from the environment is lowered, with a sentence") {
  const auto elastic = settings_with({{"lease", "21"}, {"min_num_proc", "1"}});
  CHECK(check_silence_limits(elastic, variable_name).ok());
  check(elastic, false, 3, 3);
  CHECK(about_lowered_lease(elastic) ==
        "the lease is 3 s and not the 21 s of HOROVOD_LEASE, since it must not be longer than "
        "--host-timeout 3 (the default of an elastic job)");
}

}  // namespace hvd::launcher
