#include "launcher/job/job_state.h"

#include "base/check.h"
#include "launcher/protocol/moves.h"

namespace hvd::launcher {

bool may_move(JobState from, JobState to) {
  using enum JobState;
  static constexpr Move<JobState> kMoves[] = {
      {{kPlan}, kReach}, {{kReach}, kHold},      {{kHold}, kStart},
      {{kStart}, kRun},  {{kStart, kRun}, kEnd}, {{kPlan, kReach, kStart, kRun, kEnd}, kOver},
  };
  return is_legal(kMoves, from, to);
}

void JobPhase::move(JobState to) {
  HVD_CHECK(may_move(now_, to));
  now_ = to;
  began_[static_cast<size_t>(to)] = Clock::now();
}

}  // namespace hvd::launcher
