// The guardian process, the parent of the agent. It only waits. When the agent has ended for any
// reason, it kills all remaining descendants of the agent and ends. The agent notices the end of its
// guardian. The agent's main starts it.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <vector>

namespace hvd::launcher {

// The signals that the agent waits for, all blocked by run_guarded.
sigset_t agent_signals();
// The real-time signal by which the guardian tells the agent of a signal of its own, whose number is
// the value: an ordinary one would be lost beside one that the agent got itself.
int passed_on(int number);

// Forks: `agent` runs in the child, below the guardian, and its value is the child's exit status.
// The folders, which are the agent's, are removed after that, with all in them. `arguments` are those
// of main(): the guardian's own go by another name.
// The guardian's side returns the exit status of the whole: the agent's, or 128 + its signal.
int run_guarded(char** arguments, const std::function<int()>& agent,
                const std::vector<std::string>& folders);

}  // namespace hvd::launcher
