#include "launcher/agent/agent_state.h"

#include "base/check.h"
#include "launcher/protocol/moves.h"

namespace hvd::launcher {

bool may_move(AgentState from, AgentState to) {
  using enum AgentState;
  static constexpr Move<AgentState> kMoves[] = {
      {{kIdle}, kPrepared},   {{kPrepared}, kRunning},
      {{kRunning}, kLeaving}, {{kIdle, kPrepared, kRunning, kLeaving}, kEnding},
      {{kEnding}, kKilling},  {{kRunning, kLeaving, kEnding, kKilling}, kFinished},
  };
  return is_legal(kMoves, from, to);
}

void AgentStateMachine::move(AgentState to, Deadline deadline) {
  HVD_CHECK(may_move(now_, to));
  now_ = to;
  deadline_ = deadline;
}

void AgentStateMachine::hasten(Deadline deadline) {
  if (deadline.time() < deadline_.time()) deadline_ = deadline;
}

}  // namespace hvd::launcher
