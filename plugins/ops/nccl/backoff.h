// The pause between two polls of a nonblocking NCCL call. A launch takes microseconds, and the wait for a
// late peer takes seconds. The pause is a quarter of the time since the call, so that it delays a launch by
// at most a quarter. NcclThread's channels use this pause. Pure.
#pragma once

#include <algorithm>
#include <chrono>

namespace hvd::ops::nccl {

// Returns the pause after `passed` since the call; 0: the thread only yields the processor.
inline std::chrono::microseconds pause_after(std::chrono::steady_clock::duration passed) {
  using std::chrono::microseconds;
  constexpr microseconds kEager{20}, kShortest{5}, kLongest{1000};
  if (passed < kEager) return microseconds(0);
  return std::clamp(std::chrono::duration_cast<microseconds>(passed / 4), kShortest, kLongest);
}

}  // namespace hvd::ops::nccl
