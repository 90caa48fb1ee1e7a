// Aligns the training steps of all ranks, from each rank's last steps, which the agents have read at different moments.
// StragglerWatch owns this object. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

// Some consecutive training steps, as all ranks have measured them.
struct StepWindow {
  static constexpr size_t kSteps = 50;
  struct Rank {
    int rank = 0;
    int host = 0;  // number of the rank's host
    std::vector<StepSample> steps;
  };
  uint64_t first = 0;  // the number of the window's first step
  std::vector<Rank> ranks;
};

class StepAlignment {
 public:
  struct Rank {
    int host = 0;
    RankSteps steps;
  };
  // Takes the last steps of all ranks of the job, indexed by rank. Returns the new windows.
  std::vector<StepWindow> take(const std::map<int, Rank>& ranks);
  // Returns how many steps the next window lacked at the last take(); 0: no steps are known.
  size_t left() const { return left_; }
  // Returns whether a step has ended between the last two calls of take().
  bool has_moved() const { return has_moved_; }

 private:
  uint64_t next_ = 0;  // the first step of the next window
  uint64_t ended_ = 0;
  size_t left_ = 0;
  bool has_moved_ = false;
};

}  // namespace hvd::launcher
