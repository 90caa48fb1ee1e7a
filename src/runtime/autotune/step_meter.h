// Computes the score of training steps from plans, in bytes per microsecond. A step begins when the
// mark occurs, which is the first name that occurs twice. TuningService owns the StepMeter on the root. Pure.
// Lives on the progress thread.
#pragma once

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

struct StepMeterOptions {
  int warmups = 3;  // samples that are discarded at the start
  int steps_per_sample = 10;
  int samples = 5;  // samples whose median is the score
};

class StepMeter {
 public:
  explicit StepMeter(const StepMeterOptions& options) : options_(options) {}

  // Call this before making a plan of these items, with their bytes. Returns a score if the plan completes
  // a score. The next step is then not measured, since it began before the new parameters.
  std::optional<double> add(const std::vector<PlanItem>& items, uint64_t bytes,
                            Clock::time_point now);
  // Records the ids that a plan gave to its items.
  void learn(const std::vector<PlanItem>& items);

 private:
  bool step_begins(const std::vector<PlanItem>& items);

  const StepMeterOptions options_;
  std::string mark_;                      // the name that marks a step; empty if not found yet
  uint32_t mark_id_ = 0;                  // the mark's id in the cache
  std::unordered_set<std::string> seen_;  // names that occurred before a mark is found
  size_t items_since_mark_ = 0;
  bool measures_ = false;
  Clock::time_point since_{};
  uint64_t bytes_ = 0;
  int steps_ = 0;
  int warmed_up_ = 0;
  std::vector<double> scores_;
};

}  // namespace hvd::runtime
