// Finds the ranks that a rank waits for, from the numbers of operations that ranks have announced at two moments. All
// ranks of a world announce the same operations: one that has announced more than another has an operation that cannot
// end before the other one announces it. JobInspector owns it. Pure.
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
    int number = 0;  // in the table
    int rank = 0;    // in the job
    // Name and size of the world in which it counts.
    std::string start{};
    int32_t world_size = 0;
    // As Announcements.
    uint64_t operations = 0;
    uint64_t joins = 0;
  };

  // Takes all ranks whose counts are known, after the look before had ended.
  void take(const std::vector<Rank>& ranks, Clock::time_point now);
  // Whether ranks may wait, and the look before was too long ago to know.
  bool needs_another() const { return needs_another_; }
  // The ranks for which this rank has waited since the look before, as name_of_ranks(); or empty.
  std::string of(int rank) const;

 private:
  void take_world(std::vector<const Rank*> ranks);
  const Rank* before(const Rank& rank) const;

  std::map<int, Rank> last_, before_;  // by number, of two looks
  Clock::time_point looked_at_{};
  bool needs_another_ = false;
  std::map<int, std::string> waits_;  // by rank
};

}  // namespace hvd::launcher
