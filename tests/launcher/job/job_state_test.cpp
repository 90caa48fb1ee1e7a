#include "launcher/job/job_state.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace hvd::launcher {

TEST_CASE("a launch makes the moves of its diagram and no others") {
  // The allowed transitions of each state.
  const std::vector<std::string> table = {".R....O", "..H...O", "...S...", "....REO",
                                          ".....EO", "......O", "......."};
  for (size_t from = 0; from < table.size(); ++from) {
    for (size_t to = 0; to < table.size(); ++to) {
      CAPTURE(from);
      CAPTURE(to);
      CHECK(may_move(static_cast<JobState>(from), static_cast<JobState>(to)) ==
            (table[from][to] != '.'));
    }
  }
}

TEST_CASE("a phase knows when each state began, and that the start stays in the past") {
  using enum JobState;
  JobPhase phase;
  phase.move(kReach);
  phase.move(kHold);
  CHECK(!phase.has_started());
  phase.move(kStart);
  const auto began = phase.began_at(kStart);
  phase.move(kEnd);
  phase.move(kOver);
  CHECK((phase.has_started() && phase.now() == kOver && phase.began_at(kStart) == began));
  CHECK(phase.began_at(kRun) == Clock::time_point{});
}

}  // namespace hvd::launcher
