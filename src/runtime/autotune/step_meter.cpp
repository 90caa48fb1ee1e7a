#include "runtime/autotune/step_meter.h"

#include <algorithm>

namespace hvd::runtime {
namespace {

// Maximum number of names to remember until a name repeats, and of items without the mark before
// the mark is dropped.
constexpr size_t kMost = 1 << 16;

}  // namespace

bool StepMeter::step_begins(const std::vector<PlanItem>& items) {
  bool begins = false;
  for (const PlanItem& item : items) {
    if (mark_.empty() && mark_id_ == 0) {
      // The mark is the first name that repeats, so a name used once, for example at the start, is no
      // mark. A cached name has occurred before.
      if (item.full && seen_.insert(item.name).second) continue;
      mark_ = item.name;
      mark_id_ = item.id;
      seen_.clear();
      begins = true;
    } else if (item.full ? item.name == mark_ : item.id == mark_id_) {
      if (item.id != 0) mark_id_ = item.id;
      begins = true;
    }
  }
  items_since_mark_ = begins ? 0 : items_since_mark_ + items.size();
  if (items_since_mark_ > kMost) {
    mark_.clear();
    mark_id_ = 0;
    seen_.clear();
    measures_ = false;
    items_since_mark_ = 0;
  }
  return begins;
}

void StepMeter::learn(const std::vector<PlanItem>& items) {
  if (mark_.empty()) return;
  for (const PlanItem& item : items) {
    if (item.full && item.name == mark_) mark_id_ = item.id;
  }
}

std::optional<double> StepMeter::add(const std::vector<PlanItem>& items, uint64_t bytes,
                                     Clock::time_point now) {
  const bool begins = step_begins(items);
  std::optional<double> score;
  if (begins && measures_ && ++steps_ >= options_.steps_per_sample) {
    const double microseconds = std::chrono::duration<double, std::micro>(now - since_).count();
    const double sample = static_cast<double>(bytes_) / std::max(microseconds, 1e-3);
    measures_ = false;
    if (warmed_up_ < options_.warmups)
      ++warmed_up_;
    else
      scores_.push_back(sample);
    if (static_cast<int>(scores_.size()) >= options_.samples) {
      const auto middle = scores_.begin() + static_cast<ptrdiff_t>(scores_.size() / 2);
      std::nth_element(scores_.begin(), middle, scores_.end());
      score = *middle;
      scores_.clear();
    }
  }
  if (begins && !measures_ && !score) {
    measures_ = true;
    since_ = now;
    bytes_ = 0;
    steps_ = 0;
  }
  bytes_ += bytes;
  return score;
}

}  // namespace hvd::runtime
