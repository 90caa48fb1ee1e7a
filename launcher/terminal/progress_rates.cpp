#include "launcher/terminal/progress_rates.h"

#include <chrono>

namespace hvd::launcher {
namespace {

// A slow step ends about once in this time; a fast job is seen to slow down after it.
constexpr std::chrono::seconds kWindow{10};
// For as long, the ranks of a host that does not answer may come back.
constexpr std::chrono::seconds kMoment{3};

}  // namespace

void ProgressRates::add(Clock::time_point time, const Counts& counts) {
  if (!looks_.empty() && time == looks_.back().time) return;
  // The job has begun again.
  if (!looks_.empty() && time < looks_.back().time) looks_.clear();
  const Counts last = looks_.empty() ? counts : looks_.back().counts;
  if (counts.ranks < last.ranks) {
    if (!missing_since_) missing_since_ = time;
    if (time - *missing_since_ < kMoment) return;
  }
  missing_since_.reset();
  if (counts.steps < last.steps || counts.bytes < last.bytes || counts.ranks != last.ranks)
    looks_.clear();
  looks_.push_back({time, counts});
  while (looks_.size() > 2 && time - looks_[1].time >= kWindow) looks_.pop_front();
}

std::optional<double> ProgressRates::rate(uint64_t Counts::*count) const {
  if (looks_.size() < 2 || looks_.back().counts.*count == 0) return {};
  const std::chrono::duration<double> time = looks_.back().time - looks_.front().time;
  if (time.count() <= 0) return {};
  return static_cast<double>(looks_.back().counts.*count - looks_.front().counts.*count) /
         time.count();
}

std::optional<double> ProgressRates::steps_per_second() const { return rate(&Counts::steps); }
std::optional<double> ProgressRates::bytes_per_second() const { return rate(&Counts::bytes); }

}  // namespace hvd::launcher
