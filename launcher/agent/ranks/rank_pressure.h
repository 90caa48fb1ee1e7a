// Reads sources of disturbance of the ranks' processes from /proc and cgroups. Stops no process, and waits for none.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

HostPressure host_pressure();
// Returns how long a CPU quota has stopped the cgroup of a process.
uint64_t throttled_microseconds(pid_t pid);

// Returns the number of kills by the kernel's out-of-memory killer in the memory cgroup of this process; nullopt if the
// kernel has no such counter. Any thread.
std::optional<uint64_t> out_of_memory_kills();

}  // namespace hvd::launcher
