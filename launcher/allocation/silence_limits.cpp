#include "launcher/allocation/silence_limits.h"

#include <algorithm>

#include "base/text.h"
#include "launcher/plan/job_kind.h"

namespace hvd::launcher {
namespace {

// Slurm itself takes half a minute to see that a node is gone, and its own network carries the link.
constexpr double kInStep = 12;
// An elastic job goes on without a lost host, so it waits less for one.
constexpr double kInElasticJob = 3;

double host_timeout(const LaunchSettings& settings, bool is_step) {
  if (settings.end.host_timeout.is_set) return settings.end.host_timeout.value;
  if (is_elastic(settings)) return kInElasticJob;
  // A lease alone has always set both.
  if (settings.end.lease.is_set) return settings.end.lease.value;
  return is_step ? kInStep : settings.end.host_timeout.value;
}

std::string describe_host_timeout(const LaunchSettings& settings) {
  const bool is_default = !settings.end.host_timeout.is_set;
  return cat("--host-timeout ", host_timeout(settings, false),
             is_default ? " (the default of an elastic job)" : "");
}

}  // namespace

SilenceLimits silence_limits(const LaunchSettings& settings, bool is_step) {
  const double limit = host_timeout(settings, is_step);
  const double lease = is_step && !settings.end.lease.is_set ? kInStep : settings.end.lease.value;
  return {.host_timeout_seconds = limit, .lease_seconds = std::min(lease, limit)};
}

Status check_silence_limits(const LaunchSettings& settings,
                            const std::function<std::string(std::string_view key)>& name_of) {
  const double lease = settings.end.lease.value;
  if (!settings.end.lease.is_set || lease <= host_timeout(settings, false)) return {};
  const std::string name = name_of("lease");
  // The variable may be set for all jobs of a user: the launcher lowers it.
  if (name == setting("lease").variable) return {};
  return invalid_argument(cat(name, " ", lease, " is longer than ", describe_host_timeout(settings),
                              ": ranks of a lost host would run beside those that replace them; "
                              "raise --host-timeout, or lower ",
                              name));
}

std::string about_lowered_lease(const LaunchSettings& settings) {
  const double lease = settings.end.lease.value;
  const double limit = host_timeout(settings, false);
  if (!settings.end.lease.is_set || lease <= limit) return {};
  return cat("the lease is ", limit, " s and not the ", lease, " s of ", setting("lease").variable,
             ", since it must not be longer than ", describe_host_timeout(settings));
}

}  // namespace hvd::launcher
