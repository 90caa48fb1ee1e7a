// How long a host may be without contact to the launcher: until the launcher may take it for lost, and until the
// host's agent ends its ranks. Where others may replace the ranks of a lost host, its agent stops them after the first
// time. Pure.
#pragma once

#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

struct SilenceLimits {
  double host_timeout_seconds = 0;  // --host-timeout
  double lease_seconds = 0;         // --lease
};

// `is_step`: the host is reached by a step of Slurm.
SilenceLimits silence_limits(const LaunchSettings& settings, bool is_step);

}  // namespace hvd::launcher
