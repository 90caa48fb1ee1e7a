// The rates at which a job makes progress, from the counts of its ranks at several times. The status line and
// `horovodrun top` use it. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "base/clock.h"

namespace hvd::launcher {

class ProgressRates {
 public:
  struct Counts {
    uint64_t steps = 0;  // of the rank with the most
    uint64_t bytes = 0;  // of all ranks together
    int64_t ranks = 0;   // that have counts: those of a host that does not answer are missing
  };
  // Rates begin anew with counts that fall, since the ranks did, and with another number of ranks: of fewer when they are
  // missing for longer than a moment.
  // `time`: when they were read. Counts of the same time are the same ones.
  void add(Clock::time_point time, const Counts& counts);

  // Over the last seconds, or nothing where that is not known, as before the first step.
  std::optional<double> steps_per_second() const;
  std::optional<double> bytes_per_second() const;

 private:
  struct Look {
    Clock::time_point time;
    Counts counts;
  };
  std::optional<double> rate(uint64_t Counts::*count) const;

  std::deque<Look> looks_;
  std::optional<Clock::time_point> missing_since_;
};

}  // namespace hvd::launcher
