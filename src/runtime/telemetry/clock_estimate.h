// Estimates the offset of the root's monotonic clock from this rank's by round trips: the shorter a
// round trip, the smaller its error. The error bound of an estimate grows with time, because the
// clocks drift. Timeline owns it. Values only.
#pragma once

#include <cstdint>
#include <limits>

namespace hvd::runtime {

class ClockEstimate {
 public:
  // On the same machine both read one clock, unless that is shown to be wrong.
  explicit ClockEstimate(bool same_machine) : same_machine_(same_machine) {}

  // Sent at `sent` and answered at `back` by this rank's clock; arrived at `there` and answered
  // at `answered` by the root's. Nanoseconds.
  void add(int64_t sent, int64_t there, int64_t answered, int64_t back) {
    // Differences of clocks that strangers sent may be anything.
    const double outward = static_cast<double>(there) - static_cast<double>(sent);
    const double homeward = static_cast<double>(answered) - static_cast<double>(back);
    const double round = outward - homeward;
    if (!(round >= 0) || round > kWorst || outward > kFarthest || outward < -kFarthest) return;
    const auto wrong = static_cast<int64_t>(round / 2) + 1;
    if (known_ && wrong > error(back)) return;
    offset_ = static_cast<int64_t>((outward + homeward) / 2);
    error_ = wrong;
    at_ = back;
    known_ = true;
    if (same_machine_ && offset_ <= wrong && offset_ >= -wrong) offset_ = error_ = 0;
  }

  bool known() const { return known_; }
  int64_t offset() const { return offset_; }
  // At most so much is it wrong at a time of this rank's clock.
  int64_t error(int64_t now) const {
    if (!known_) return std::numeric_limits<int64_t>::max();
    if (same_machine_ && offset_ == 0) return error_;
    const int64_t age = now > at_ ? now - at_ : 0;
    return error_ + age / kDrift;
  }

 private:
  static constexpr int64_t kDrift = 10'000;  // a clock is wrong by one part in so many at most
  static constexpr double kWorst = 60e9;     // a round trip that says nothing
  static constexpr double kFarthest = 4e18;  // clocks may begin anywhere, but not overflow

  const bool same_machine_;
  bool known_ = false;
  int64_t offset_ = 0;
  int64_t error_ = 0;
  int64_t at_ = 0;
};

}  // namespace hvd::runtime
