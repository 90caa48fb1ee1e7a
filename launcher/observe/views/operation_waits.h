// Finds the ranks that a rank waits for, from the numbers of announced operations of all ranks at two moments. All
// ranks of a world announce the same operations. A rank that has announced more than another rank therefore waits for
// it: an operation cannot end before all ranks have announced it. JobInspector owns this object. Pure.
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
    // Name and size of the world whose operations the rank counts.
    std::string start{};
    int32_t world_size = 0;
    // See Announcements.
    uint64_t operations = 0;
    uint64_t joins = 0;
  };

  // Takes all ranks whose counts are known. Call at each look, after the end of the previous look.
  void take(const std::vector<Rank>& ranks, Clock::time_point now);
  // Returns whether ranks may wait, but the previous look is too old to decide.
  bool needs_another() const { return needs_another_; }
  // Returns the ranks for which this rank has waited since the previous look, as formatted by name_of_ranks(); may be
  // empty.
  std::string of(int rank) const;

 private:
  void take_world(std::vector<const Rank*> ranks);
  const Rank* before(const Rank& rank) const;

  std::map<int, Rank> last_, before_;  // counts at the last two looks, by number in the table
  Clock::time_point looked_at_{};
  bool needs_another_ = false;
  std::map<int, std::string> waits_;  // by rank
};

}  // namespace hvd::launcher
