// When a sentence about a wait is printed: first at a given time, and each minute from then on. No I/O, no clock.
#pragma once

#include <chrono>
#include <optional>

#include "base/clock.h"

namespace hvd::launcher {

class Reminder {
 public:
  static constexpr std::chrono::seconds kInterval{60};

  // Does nothing while it is on.
  void start(Clock::time_point first) { next_ = next_.value_or(first); }
  void stop() { next_.reset(); }
  // Returns whether the sentence is due now, and then expects that the caller prints it.
  bool is_due(Clock::time_point now) {
    if (now < next()) return false;
    next_ = now + kInterval;
    return true;
  }
  // Time::max(): it is off.
  Clock::time_point next() const { return next_.value_or(Clock::time_point::max()); }

 private:
  std::optional<Clock::time_point> next_;
};

}  // namespace hvd::launcher
