#include "launcher/agent/agent_state.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

using namespace hvd;
using namespace hvd::launcher;

namespace {

// Returns the state after each transition, or -1 if the transition ends the process.
int state_after(const std::vector<AgentState>& moves) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
    AgentStateMachine state;
    for (const AgentState to : moves) state.move(to);
    ::_exit(static_cast<int>(state.now()));
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("An agent makes the moves of its diagram and no others") {
  using enum AgentState;
  const std::vector<AgentState> states = {kIdle,   kPrepared, kRunning, kLeaving,
                                          kEnding, kKilling,  kFinished};
  // The allowed transitions of each state.
  const std::vector<std::string> table = {".P..E..", "..R.E..", "...LE.F", "....E.F",
                                          ".....KF", "......F", "......."};
  for (size_t from = 0; from < states.size(); ++from) {
    for (size_t to = 0; to < states.size(); ++to) {
      CAPTURE(from);
      CAPTURE(to);
      CHECK(may_move(states[from], states[to]) == (table[from][to] != '.'));
    }
  }
}

TEST_CASE("A move that the diagram does not have ends the process") {
  using enum AgentState;
  CHECK(state_after({kPrepared, kRunning, kLeaving, kEnding, kKilling, kFinished}) ==
        static_cast<int>(kFinished));
  CHECK(state_after({kRunning}) == -1);
  CHECK(state_after({kPrepared, kPrepared}) == -1);
  CHECK(state_after({kEnding, kPrepared}) == -1);
}

TEST_CASE("The deadline of a state can only come nearer, and ends with the state") {
  AgentStateMachine state;
  CHECK(state.deadline().is_never());
  state.move(AgentState::kEnding, Deadline::after_seconds(100));
  state.hasten(Deadline::after_seconds(200));
  CHECK(state.deadline().seconds_left() < 101);
  state.hasten(Deadline::after_seconds(0));
  CHECK(state.deadline().passed());
  state.move(AgentState::kFinished);
  CHECK(state.deadline().is_never());
}
