// Reads from /proc and the cgroups what disturbs the processes of ranks. Stops no process, and waits for none.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/protocol/host_steps.h"

namespace hvd::launcher {

// `ranks`: their numbers and first processes. The agent calls it.
std::vector<RankPressure> pressures_of(const std::vector<std::pair<int, pid_t>>& ranks);

// The files cpu.stat of a process, innermost first, from the text of its /proc/PID/cgroup: of cgroup v2, or of v1.
std::vector<std::string> cpu_stat_files(std::string_view cgroups);

}  // namespace hvd::launcher
