// Reads the resource usage of processes from /proc. Stops no process, and waits for none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/agent/host/process_tree.h"
#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

// CPU times, in microseconds.
struct CpuTimes {
  uint64_t own = 0;
  uint64_t of_children = 0;  // CPU time of reaped child processes
};
// `folder`: "/proc/PID/" of a process, or "/proc/PID/task/TID/" of a thread.
CpuTimes cpu_times(const std::string& folder);

// The microseconds for which a thread ran on a processor, and for which it waited for a processor.
struct ThreadTimes {
  uint64_t cpu = 0, delay = 0;
};
// `folder`: "/proc/PID/task/TID/".
ThreadTimes thread_times(const std::string& folder);
// Returns the sum over the first `most` threads of the process "/proc/PID/", without the thread `left_out`.
ThreadTimes threads_times(const std::string& folder, std::string_view left_out, size_t most);

// Returns the sum over these processes, which are one process and its descendants, and over their reaped children.
ProcessUsage usage_of(const std::vector<ProcessEntry>& processes);
// Raises the counts in `usage` to those of `now`, and copies all other values.
void advance(ProcessUsage& usage, const ProcessUsage& now);

}  // namespace hvd::launcher
