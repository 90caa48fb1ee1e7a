// Reads sources of disturbance of the ranks' processes from /proc and cgroups. Stops no process, and waits for none.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

HostPressure host_pressure();
// Returns how long a CPU quota has stopped the cgroup of a process.
uint64_t throttled_microseconds(pid_t pid);

}  // namespace hvd::launcher
