// Monotonic time and deadlines. Callers pass deadlines, not durations.
#pragma once

#include <algorithm>
#include <chrono>

namespace hvd {

using Clock = std::chrono::steady_clock;

inline Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class Deadline {
 public:
  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after(std::chrono::duration<double> seconds) {
    if (seconds.count() > 1e9) return never();
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds));
  }
  static Deadline after_seconds(double seconds) {
    return after(std::chrono::duration<double>(seconds));
  }
  static Deadline at(Clock::time_point time) { return Deadline(time); }

  bool is_never() const { return time_ == Clock::time_point::max(); }
  bool passed() const { return !is_never() && Clock::now() >= time_; }
  Clock::time_point time() const { return time_; }
  // Returns the milliseconds left, rounded up, for poll(2); -1 for a deadline that never comes.
  int poll_timeout() const {
    if (is_never()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(time_ - Clock::now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, 1 << 30));
  }
  double seconds_left() const {
    if (is_never()) return 1e9;
    return std::max(0.0, std::chrono::duration<double>(time_ - Clock::now()).count());
  }

 private:
  explicit Deadline(Clock::time_point time) : time_(time) {}
  Clock::time_point time_;
};

}  // namespace hvd
