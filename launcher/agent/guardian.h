// The guardian process, the parent of the agent. The guardian waits for the agent's end, then kills all remaining
// descendants of the agent, and ends. The guardian also kills an agent that hangs or is stopped for longer than its
// lease. The agent detects the end of its guardian.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "launcher/agent/watchdog.h"

namespace hvd::launcher {

// Returns the signals that the agent waits for. run_guarded blocks them all.
sigset_t agent_signals();
// Returns the real-time signal by which the guardian forwards the signal `number` to the agent, with `number`
// as the signal's value (sigqueue). The signal `number` itself would merge with the same signal that the agent
// received directly.
int passed_on(int number);

// Forks. `agent` runs in the child, and returns the child's exit status. This process becomes the guardian: it changes
// the process title in `arguments`, which are main()'s arguments, removes the agent's `folders` after the agent's end,
// and returns the agent's exit status, or 128 plus the signal that ended the agent.
int run_guarded(char** arguments, const std::function<int(Watchdog&)>& agent,
                const std::vector<std::string>& folders);

}  // namespace hvd::launcher
