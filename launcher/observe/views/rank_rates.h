// Computes the resources that each rank has used between two answers of its launcher. Pure.
#pragma once

#include <cstdint>
#include <map>

#include "base/clock.h"
#include "launcher/observe/views/job_view.h"
#include "launcher/output/launch_progress.h"

namespace hvd::launcher {

// Shares of the time between two answers; -1: unknown.
struct RankRates {
  double cpu = -1;        // share of a core
  double run_delay = -1;  // time in which the rank's processes were runnable, but had no processor
};

class JobRates {
 public:
  void add(const JobView& job);
  RankRates of(const RankView& rank) const;
  const ProgressRates& job() const { return job_; }

 private:
  struct Look {
    int64_t pid = -1;
    double age = -1, cpu = -1, run_delay = -1;
  };
  // Returns a rank's key in successive answers: in an elastic job the process number, equal over generations.
  static int key_of(const RankView& rank) { return rank.process >= 0 ? rank.process : rank.rank; }

  ProgressRates job_;
  std::map<int, Look> last_;
  std::map<int, RankRates> rates_;
};

}  // namespace hvd::launcher
