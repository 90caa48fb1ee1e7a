// Reads disturbances of the ranks' processes from /proc and the cgroups. Stops no process, and waits for none.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

HostPressure host_pressure();
// The time for which a CPU quota has stopped the cgroup of a process.
uint64_t throttled_microseconds(pid_t pid);

// The files cpu.stat of a process, innermost first, from the text of its /proc/PID/cgroup: of cgroup v2, or of v1.
std::vector<std::string> cpu_stat_files(std::string_view cgroups);

}  // namespace hvd::launcher
