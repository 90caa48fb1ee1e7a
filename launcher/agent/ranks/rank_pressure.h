// Reads sources of disturbance of the ranks' processes from /proc and cgroups. Stops no process, and waits for none.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

HostPressure host_pressure();
// Returns how long a CPU quota has stopped the cgroup of a process.
uint64_t throttled_microseconds(pid_t pid);

// Returns the paths of a process's cpu.stat files, innermost first, from the text of /proc/PID/cgroup (cgroup v2 or
// v1).
std::vector<std::string> cpu_stat_files(std::string_view cgroups);

}  // namespace hvd::launcher
