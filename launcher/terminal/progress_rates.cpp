#include "launcher/terminal/progress_rates.h"

#include <chrono>

namespace hvd::launcher {
namespace {

// A slow step ends about once in this time; a fast job is seen to slow down after it.
constexpr std::chrono::seconds kWindow{10};

}  // namespace

void ProgressRates::add(Clock::time_point now, uint64_t steps, uint64_t bytes) {
  if (!looks_.empty() && (steps < looks_.back().steps || bytes < looks_.back().bytes))
    looks_.clear();
  looks_.push_back({now, steps, bytes});
  while (looks_.size() > 2 && now - looks_[1].time >= kWindow) looks_.pop_front();
}

std::optional<double> ProgressRates::rate(uint64_t Look::*count) const {
  if (looks_.size() < 2 || looks_.back().*count == 0) return {};
  const std::chrono::duration<double> time = looks_.back().time - looks_.front().time;
  if (time.count() <= 0) return {};
  return static_cast<double>(looks_.back().*count - looks_.front().*count) / time.count();
}

std::optional<double> ProgressRates::steps_per_second() const { return rate(&Look::steps); }
std::optional<double> ProgressRates::bytes_per_second() const { return rate(&Look::bytes); }

}  // namespace hvd::launcher
