// The resource limits and the umask that the command of --remote-init leaves to the ranks (`ulimit`, `umask`): read
// from /proc for its shell, and set in a new process. Pure, except for the calls that get and set.
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

// Returns the limits in the text of /proc/PID/limits that differ from those of this process, and the umask in the text
// of /proc/PID/status, which may follow it.
ProcessLimits read_process_limits(std::string_view text);

// Returns the limit of a process that these are set in.
rlimit limit_of(const ProcessLimits& limits, Resource resource);

// Call in a new process, before it executes a program. Allocates nothing.
void set_process_limits(const ProcessLimits& limits);

}  // namespace hvd::launcher
