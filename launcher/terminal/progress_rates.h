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
  // `steps`: of the rank with the most; `bytes`: of all ranks together. Counts that fall begin anew: the ranks did.
  void add(Clock::time_point now, uint64_t steps, uint64_t bytes);
  void clear() { looks_.clear(); }

  // Over the last seconds, or nothing where that is not known, as before the first step.
  std::optional<double> steps_per_second() const;
  std::optional<double> bytes_per_second() const;

 private:
  struct Look {
    Clock::time_point time;
    uint64_t steps, bytes;
  };
  std::optional<double> rate(uint64_t Look::*count) const;

  std::deque<Look> looks_;
};

}  // namespace hvd::launcher
