// Reads what /proc shows of a process with Python: whether it is one, its threads, and who may read its memory.
#pragma once

#include <sys/types.h>

#include <vector>

#include "launcher/agent/host/process_snapshot.h"
#include "launcher/agent/stacks/named_wait.h"
#include "launcher/agent/stacks/sampling_failure.h"

namespace hvd::launcher {

bool runs_python(pid_t pid);
// Those of these processes with Python that have no other of them above.
std::vector<pid_t> topmost_pythons(const std::vector<ProcessSnapshot>& processes);
// The signs of its wait that /proc shows, without its stack.
WaitSigns wait_signs(pid_t pid);
// `first`: the process that the agent has started.
ReadAccess read_access(pid_t pid, pid_t first);

}  // namespace hvd::launcher
