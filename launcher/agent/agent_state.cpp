#include "launcher/agent/agent_state.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hvd::launcher {

namespace {

using enum AgentState;

constexpr std::pair<AgentState, AgentState> kMoves[] = {
    {kIdle, kPrepared},    {kPrepared, kRunning}, {kRunning, kLeaving}, {kIdle, kEnding},
    {kPrepared, kEnding},  {kRunning, kEnding},   {kLeaving, kEnding},  {kEnding, kKilling},
    {kRunning, kFinished}, {kLeaving, kFinished}, {kEnding, kFinished}, {kKilling, kFinished},
};

}  // namespace

bool may_move(AgentState from, AgentState to) {
  return std::ranges::find(kMoves, std::pair(from, to)) != std::end(kMoves);
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
