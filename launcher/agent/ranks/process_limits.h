// The resource limits and the umask that the command of --remote-init sets for the ranks (`ulimit`, `umask`): read
// from /proc of its shell, and set in a new process. Pure, except the functions that get or set limits.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace hvd::launcher {

using Resource = decltype(RLIMIT_CPU);

struct ProcessLimits {
  std::vector<std::pair<Resource, rlimit>> limits;
  std::optional<mode_t> umask;
};

// Returns the limits in the text of /proc/PID/limits that differ from this process's limits, and the umask if the text
// of /proc/PID/status follows.
ProcessLimits read_process_limits(std::string_view text);

// Returns the limit of a process after set_process_limits(limits).
rlimit limit_of(const ProcessLimits& limits, Resource resource);

// Call in a new process, before it executes a program. Does not allocate memory.
void set_process_limits(const ProcessLimits& limits);

}  // namespace hvd::launcher
