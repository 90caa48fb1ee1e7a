// How long a host may be without contact to the launcher: until the launcher takes it for lost, and until the
// host's agent ends its ranks. The second is never longer than the first, so that no rank of a lost host
// runs beside its replacement. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "launcher/settings/launch_settings.h"

namespace hvd::launcher {

struct SilenceLimits {
  double host_timeout_seconds = 0;  // --host-timeout
  double lease_seconds = 0;         // --lease, at most the host timeout
};

// `is_step`: the host is reached by a step of Slurm.
SilenceLimits silence_limits(const LaunchSettings& settings, bool is_step);

// Refuses a lease that a flag or a config file gives and that is longer than the host timeout.
Status check_silence_limits(const LaunchSettings& settings,
                            const std::function<std::string(std::string_view key)>& name_of);

// A sentence about HOROVOD_LEASE when it is longer than the host timeout; else empty.
std::string about_lowered_lease(const LaunchSettings& settings);

}  // namespace hvd::launcher
