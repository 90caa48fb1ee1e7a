// Aligns the training steps of all ranks from each rank's last steps, which the agents read at different moments.
// StragglerWatch owns this object. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/hosts/rank_run.h"
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
  // Returns the number of steps that the next window lacked at the last take(); 0 if no steps are known.
  size_t left() const { return left_; }
  // Returns whether a step has ended between the last two calls of take().
  bool has_moved() const { return has_moved_; }

 private:
  uint64_t next_ = 0;  // the first step of the next window
  uint64_t ended_ = 0;
  size_t left_ = 0;
  bool has_moved_ = false;
};

// Sums the time that the ranks of a job have waited for each other, for the job's metrics and the line at its end.
// StragglerWatch owns this object. Pure.
class WaitTally {
 public:
  // Takes the answers of the agents, for all ranks of the job.
  void take(const std::map<int, StepAlignment::Rank>& ranks);
  void take(const StepWindow& window);
  // Call before the ranks get new numbers.
  void forget_ranks() {
    ranks_.clear();
    named_windows_ = 0;
  }
  // Returns the waits, indexed by rank. The caller decides which ranks are late now.
  std::map<int, RankWaits> waits() const;
  // Returns "ranks waited 21 % of the time, most often for rank 3 (b), in layer4.weight"; empty if ranks waited little,
  // or if few steps were observed. `host_of` is indexed by rank.
  std::string summary(const std::vector<std::string>& host_of) const;

 private:
  struct Rank {
    uint64_t total = 0, waited = 0;                // microseconds of the rank's present process
    uint64_t total_before = 0, waited_before = 0;  // microseconds of its earlier processes
    double late = 0;  // in seconds: observed for some steps, estimated for the other steps
    uint64_t times_last = 0;
  };

  std::map<int, Rank> ranks_;
  std::map<std::string, uint64_t> awaited_;  // microseconds, by operation
  // Microseconds, over all windows and ranks: waits beyond the wait of a step's last rank, and durations of the steps.
  uint64_t waited_for_ranks_ = 0, seen_ = 0;
  uint64_t windows_ = 0, named_windows_ = 0;  // `named_windows_`: since forget_ranks()
  uint64_t next_ = 0;                         // the step after the last window
};

}  // namespace hvd::launcher
