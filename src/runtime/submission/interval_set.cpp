#include "runtime/submission/interval_set.h"

#include <algorithm>
#include <utility>

namespace hvd::runtime {

void IntervalSet::Chunk::find_max_end() {
  max_end = 0;
  for (size_t i = 0; i < count; ++i) max_end = std::max(max_end, intervals[i].end);
}

void IntervalSet::insert(const Interval& interval) {
  if (chunks_.empty()) {
    chunks_.push_back(spare_ ? std::move(spare_) : std::make_unique<Chunk>());
    firsts_.push_back(interval.begin);
  }
  // The last chunk that begins at or before the interval: equal ones stay in the order of their insertion.
  const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), interval.begin);
  auto at = static_cast<size_t>(std::max<ptrdiff_t>(after - firsts_.begin() - 1, 0));
  if (chunks_[at]->count == kChunk) {
    split(at);
    if (firsts_[at + 1] <= interval.begin) ++at;
  }
  Chunk& chunk = *chunks_[at];
  const auto begin = chunk.intervals.begin(), end = begin + static_cast<ptrdiff_t>(chunk.count);
  const auto place =
      std::upper_bound(begin, end, interval.begin,
                       [](uintptr_t value, const Interval& known) { return value < known.begin; });
  std::move_backward(place, end, end + 1);
  *place = interval;
  ++chunk.count;
  chunk.max_end = std::max(chunk.max_end, interval.end);
  firsts_[at] = chunk.intervals.front().begin;
}

void IntervalSet::split(size_t at) {
  auto upper = spare_ ? std::move(spare_) : std::make_unique<Chunk>();
  Chunk& lower = *chunks_[at];
  constexpr size_t kHalf = kChunk / 2;
  std::copy(lower.intervals.begin() + kHalf, lower.intervals.end(), upper->intervals.begin());
  lower.count = kHalf;
  upper->count = kChunk - kHalf;
  lower.find_max_end();
  upper->find_max_end();
  const auto next = static_cast<ptrdiff_t>(at) + 1;
  firsts_.insert(firsts_.begin() + next, upper->intervals.front().begin);
  chunks_.insert(chunks_.begin() + next, std::move(upper));
}

bool IntervalSet::erase(uintptr_t begin, const Submission* owner) {
  const auto from = std::lower_bound(firsts_.begin(), firsts_.end(), begin);
  // The chunk before may end with intervals that begin there.
  for (auto at = static_cast<size_t>(std::max<ptrdiff_t>(from - firsts_.begin() - 1, 0));
       at < chunks_.size() && firsts_[at] <= begin; ++at) {
    const Chunk& chunk = *chunks_[at];
    const auto first = chunk.intervals.begin(), end = first + static_cast<ptrdiff_t>(chunk.count);
    auto found = std::lower_bound(first, end, begin, [](const Interval& known, uintptr_t value) {
      return known.begin < value;
    });
    for (; found != end && found->begin == begin; ++found) {
      if (found->owner != owner) continue;
      erase_from(at, static_cast<size_t>(found - first));
      return true;
    }
  }
  return false;
}

void IntervalSet::erase_from(size_t at, size_t index) {
  Chunk& chunk = *chunks_[at];
  const uintptr_t end = chunk.intervals[index].end;
  std::move(chunk.intervals.begin() + static_cast<ptrdiff_t>(index) + 1,
            chunk.intervals.begin() + static_cast<ptrdiff_t>(chunk.count),
            chunk.intervals.begin() + static_cast<ptrdiff_t>(index));
  --chunk.count;
  if (chunk.count == 0) {
    chunk.max_end = 0;
    spare_ = std::move(chunks_[at]);
    chunks_.erase(chunks_.begin() + static_cast<ptrdiff_t>(at));
    firsts_.erase(firsts_.begin() + static_cast<ptrdiff_t>(at));
    return;
  }
  if (end == chunk.max_end) chunk.find_max_end();
  firsts_[at] = chunk.intervals.front().begin;
}

const IntervalSet::Interval* IntervalSet::find_overlap(uintptr_t begin, uintptr_t end) const {
  const auto after = std::lower_bound(firsts_.begin(), firsts_.end(), end);
  for (auto at = static_cast<size_t>(after - firsts_.begin()); at > 0; --at) {
    const Chunk& chunk = *chunks_[at - 1];
    if (chunk.max_end <= begin) continue;
    const auto first = chunk.intervals.begin(), last = first + static_cast<ptrdiff_t>(chunk.count);
    auto one = std::lower_bound(first, last, end, [](const Interval& known, uintptr_t value) {
      return known.begin < value;
    });
    while (one != first) {
      if ((--one)->end > begin) return &*one;
    }
  }
  return nullptr;
}

}  // namespace hvd::runtime
