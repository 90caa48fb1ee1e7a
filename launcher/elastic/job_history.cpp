#include "launcher/elastic/job_history.h"

#include <algorithm>
#include <chrono>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr size_t kResetsReported = 5;

}  // namespace

void ResetHistory::count(int64_t generation, const std::string& why, Clock::time_point now) {
  resets_.push_back({now, generation, why});
}

bool ResetHistory::may_reset(const std::optional<ResetLimit>& limit, Clock::time_point now) {
  if (!limit) {
    resets_.clear();
    return true;
  }
  if (limit->seconds) {
    const auto first = now - duration_of(*limit->seconds);
    std::erase_if(resets_, [&](const Reset& reset) { return reset.time < first; });
  }
  return std::ssize(resets_) < limit->resets;
}

std::string ResetHistory::left(const std::optional<ResetLimit>& limit) const {
  if (!limit) return "";
  const auto count = limit->resets - std::ssize(resets_);
  return cat("; ", count, count == 1 ? " change is left" : " changes are left");
}

std::string ResetHistory::sentence() const {
  const size_t left_out = resets_.size() - std::min(resets_.size(), kResetsReported);
  std::string causes = left_out > 0 ? "; the last ones" : "";
  for (size_t reset = left_out; reset < resets_.size(); ++reset) {
    causes += cat(reset == left_out && left_out > 0 ? ": " : "; ", "generation ",
                  resets_[reset].generation, ": ", resets_[reset].why);
  }
  return cat("the ranks of the job have changed ", resets_.size(),
             resets_.size() == 1 ? " time" : " times", ", and may not change again (--reset-limit)",
             causes);
}

}  // namespace hvd::launcher
