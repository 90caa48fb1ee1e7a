// Reads facts about a Python process from /proc: the signs of its wait, and the facts that determine whether the agent
// may read its memory.
#pragma once

#include <sys/types.h>

#include "launcher/agent/stacks/named_wait.h"
#include "launcher/agent/stacks/python_stack.h"

namespace hvd::launcher {

// Returns WaitSigns without `stack`, `no_stack` and `line`, which /proc does not show.
WaitSigns wait_signs(pid_t pid);
// `first`: the rank's first process, which the agent started.
ReadAccess read_access(pid_t pid, pid_t first);

}  // namespace hvd::launcher
