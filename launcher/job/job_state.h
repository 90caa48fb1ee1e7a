// The phases of one launch, and the moves from each phase:
//
//   plan ---> reach ---> hold ---> start ---> run
//    |          |                    |         |
//    |          |                    +----+----+     a failure, a signal, or a part ends the ranks
//    |          |                    |    v    |
//    |          |                    |   end   |
//    v          v                    v    v    v
//   over <------+--------------------+----+----+     nothing runs on any host
//
// JobLaunch owns this object and makes the moves. One thread.
#pragma once

#include <array>
#include <cstdint>

#include "base/check.h"
#include "base/clock.h"
#include "launcher/protocol/moves.h"

namespace hvd::launcher {

enum class JobState : uint8_t {
  kPlan,   // the launch reads its files
  kReach,  // agents are started on the hosts, and prepare the hosts
  kHold,   // the agents wait for the order to start
  kStart,  // the hosts have the order
  kRun,    // all ranks with which the launch began run
  kEnd,    // the ranks are being ended
  kOver
};

inline bool may_move(JobState from, JobState to) {
  using enum JobState;
  static constexpr Move<JobState> kMoves[] = {
      {{kPlan}, kReach}, {{kReach}, kHold},      {{kHold}, kStart},
      {{kStart}, kRun},  {{kStart, kRun}, kEnd}, {{kPlan, kReach, kStart, kRun, kEnd}, kOver},
  };
  return is_legal(kMoves, from, to);
}

class JobPhase {
 public:
  JobState now() const { return now_; }
  bool has_started() const { return began_at(JobState::kStart) != Clock::time_point{}; }
  // Returns the time at which `state` began; the epoch if it has not begun.
  Clock::time_point began_at(JobState state) const { return began_[static_cast<size_t>(state)]; }
  // Ends the process if the diagram lacks the transition.
  void move(JobState to) {
    HVD_CHECK(may_move(now_, to));
    now_ = to;
    began_[static_cast<size_t>(to)] = Clock::now();
  }

 private:
  JobState now_ = JobState::kPlan;
  std::array<Clock::time_point, static_cast<size_t>(JobState::kOver) + 1> began_{};
};

}  // namespace hvd::launcher
