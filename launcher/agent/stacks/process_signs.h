// Reads facts about a Python process from /proc: its threads, and the users who may read its memory.
#pragma once

#include <sys/types.h>

#include "launcher/agent/stacks/named_wait.h"
#include "launcher/agent/stacks/sampling_failure.h"

namespace hvd::launcher {

// The signs of its wait that /proc shows, without its stack.
WaitSigns wait_signs(pid_t pid);
// `first`: the process that the agent has started.
ReadAccess read_access(pid_t pid, pid_t first);

}  // namespace hvd::launcher
