// Estimates the offset between the monotonic clocks of the root and of this rank, by round trips: the
// shorter a round trip, the smaller the error. The error bound of an estimate grows with time, because
// the clocks drift. Timeline owns the estimate. Does no I/O.
#pragma once

#include <cstdint>
#include <limits>

namespace hvd::runtime {

class ClockEstimate {
 public:
  // On the same machine both ranks read one clock, unless a round trip disproves it.
  explicit ClockEstimate(bool same_machine) : same_machine_(same_machine) {}

  // Adds a round trip: a ping left at `sent`, and its pong arrived at `back` (this rank's clock); the ping
  // arrived at `there`, and the pong left at `answered` (the root's clock). In nanoseconds.
  void add(int64_t sent, int64_t there, int64_t answered, int64_t back) {
    // Computed as double, since the root's times are untrusted and a difference may overflow.
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
  // Returns the error bound of offset() at a time of this rank's clock.
  int64_t error(int64_t now) const {
    if (!known_) return std::numeric_limits<int64_t>::max();
    if (same_machine_ && offset_ == 0) return error_;
    const int64_t age = now > at_ ? now - at_ : 0;
    return error_ + age / kDrift;
  }

 private:
  static constexpr int64_t kDrift = 10'000;  // clocks drift by at most one part in this number
  static constexpr double kWorst = 60e9;     // longest useful round trip
  static constexpr double kFarthest = 4e18;  // limit of an offset, against overflow

  const bool same_machine_;
  bool known_ = false;
  int64_t offset_ = 0;
  int64_t error_ = 0;
  int64_t at_ = 0;
};

}  // namespace hvd::runtime
