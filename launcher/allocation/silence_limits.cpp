#include "launcher/allocation/silence_limits.h"

#include "launcher/plan/launch_settings.h"

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

}  // namespace

SilenceLimits silence_limits(const LaunchSettings& settings, bool is_step) {
  return {.host_timeout_seconds = host_timeout(settings, is_step),
          .lease_seconds = settings.end.lease.value};
}

}  // namespace hvd::launcher
