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
  // Find the last chunk that begins before the interval.
  size_t at = count_below(firsts_.data(), firsts_.size(), interval.begin);
  if (at > 0) --at;
  if (chunks_[at]->count == kChunk) {
    split(at);
    if (firsts_[at + 1] < interval.begin) ++at;
  }
  Chunk& chunk = *chunks_[at];
  const auto end = chunk.intervals.begin() + static_cast<ptrdiff_t>(chunk.count);
  const auto place =
      chunk.intervals.begin() +
      static_cast<ptrdiff_t>(count_below(chunk.intervals.data(), chunk.count, interval.begin));
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

bool IntervalSet::erase(uintptr_t begin, const MemoryUse* use) {
  // The previous chunk may end with intervals that begin there.
  size_t at = count_below(firsts_.data(), firsts_.size(), begin);
  if (at > 0) --at;
  for (; at < chunks_.size() && firsts_[at] <= begin; ++at) {
    const Chunk& chunk = *chunks_[at];
    for (size_t i = count_below(chunk.intervals.data(), chunk.count, begin);
         i < chunk.count && chunk.intervals[i].begin == begin; ++i) {
      if (chunk.intervals[i].use != use) continue;
      erase_from(at, i);
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

}  // namespace hvd::runtime
