// The states of a job in the agent of one host, and the moves between them:
//
//   idle ---> prepared ---> running ---> leaving
//    |           |           |  |         |  |
//    +-----------+-----------+--|---------+  |     an order, a signal, a lost link, or a process that ranks left
//                |              |            |
//                v              |            |
//              ending           |            |
//                |   \          |            |     the grace is over
//                |    killing   |            |
//                |       |      |            |
//                +-------+------+------------+---> finished
//
// Class Agent owns the state and makes the transitions. One thread.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace hvd::launcher {

enum class AgentState : uint8_t {
  kIdle,      // the agent knows no job
  kPrepared,  // the agent knows the job, and prepares the host or has prepared it
  kRunning,   // the agent has started ranks
  kLeaving,   // the agent got SIGTERM, and the ranks of an elastic job may still commit
  kEnding,    // the ranks have received the end signal
  kKilling,   // all processes of the job have received SIGKILL
  kFinished,  // no process of the job is left, or SIGKILL does not end the remaining ones
};

// Returns whether the diagram has this move.
bool may_move(AgentState from, AgentState to);

class AgentStateMachine {
 public:
  AgentState now() const { return now_; }
  bool runs_ranks() const { return now_ == AgentState::kRunning || now_ == AgentState::kLeaving; }
  // Returns whether the job is ending or has ended.
  bool is_ending() const { return now_ >= AgentState::kEnding; }
  // Returns the deadline of this state. The caller makes the move.
  Deadline deadline() const { return deadline_; }

  // Makes a transition. Ends the process if the diagram lacks the transition.
  void move(AgentState to, Deadline deadline = Deadline::never());
  // Replaces the deadline of this state if the new one is earlier.
  void hasten(Deadline deadline);

 private:
  AgentState now_ = AgentState::kIdle;
  Deadline deadline_ = Deadline::never();
};

}  // namespace hvd::launcher
