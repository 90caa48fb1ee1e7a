// Reads facts about a Python process from /proc: its threads, and the users allowed to read its memory.
#pragma once

#include <sys/types.h>

#include "launcher/agent/stacks/named_wait.h"
#include "launcher/agent/stacks/python_stack.h"

namespace hvd::launcher {

// Returns the part of WaitSigns that /proc shows: everything except the stack and the source line.
WaitSigns wait_signs(pid_t pid);
// `first`: the rank's first process, which the agent started.
ReadAccess read_access(pid_t pid, pid_t first);

}  // namespace hvd::launcher
