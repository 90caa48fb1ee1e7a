// Finds the ranks that a rank waits for, from the numbers of announced operations of all ranks at two moments. All
// ranks of a world announce the same operations: if a rank has announced more than another rank, one of its operations
// cannot end before the other rank announces it. JobInspector owns it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"

namespace hvd::launcher {

class OperationWaits {
 public:
  struct Rank {
    int number = 0;  // number in the table
    int rank = 0;    // rank in the job
    // Name and size of the world in which it counts.
    std::string start{};
    int32_t world_size = 0;
    // Same as in Announcements.
    uint64_t operations = 0;
    uint64_t joins = 0;
  };

  // Takes all ranks with known counts; call it after the end of the previous look.
  void take(const std::vector<Rank>& ranks, Clock::time_point now);
  // Returns whether ranks may wait, and the previous look was too long ago to decide.
  bool needs_another() const { return needs_another_; }
  // Returns the ranks for which this rank has waited since the previous look, as name_of_ranks(); or empty.
  std::string of(int rank) const;

 private:
  void take_world(std::vector<const Rank*> ranks);
  const Rank* before(const Rank& rank) const;

  std::map<int, Rank> last_, before_;  // key: number; at the last two looks
  Clock::time_point looked_at_{};
  bool needs_another_ = false;
  std::map<int, std::string> waits_;  // key: rank
};

}  // namespace hvd::launcher
