// The life of a job on one host, as the agent there sees it, and the moves from each state:
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
// Agent owns the state and makes the moves. One thread.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace hvd::launcher {

enum class AgentState : uint8_t {
  kIdle,      // the agent knows no job
  kPrepared,  // it knows the job, and prepares the host or has done so
  kRunning,   // it has started ranks
  kLeaving,   // it got SIGTERM, and the ranks of an elastic job may still commit
  kEnding,    // the ranks have got the end signal
  kKilling,   // all processes of the job have got SIGKILL
  kFinished,  // no process of the job is left, or SIGKILL does not end it
};

// Whether the diagram has this move.
bool may_move(AgentState from, AgentState to);

class AgentStateMachine {
 public:
  AgentState now() const { return now_; }
  bool runs_ranks() const { return now_ == AgentState::kRunning || now_ == AgentState::kLeaving; }
  // Whether the job ends or has ended.
  bool is_ending() const { return now_ >= AgentState::kEnding; }
  // The end of the time for this state. The caller makes the move.
  Deadline deadline() const { return deadline_; }

  // A move that the diagram does not have ends the process.
  void move(AgentState to, Deadline deadline = Deadline::never());
  // Replaces the deadline of this state by an earlier one.
  void hasten(Deadline deadline);

 private:
  AgentState now_ = AgentState::kIdle;
  Deadline deadline_ = Deadline::never();
};

}  // namespace hvd::launcher
