// The time between two questions whether a nonblocking call of NCCL is through. A launch takes
// microseconds, and a peer that has not come takes seconds: the time is a part of what has passed, so that
// a question costs a launch at most a quarter more. NcclThread's channels use it. Pure.
#pragma once

#include <algorithm>
#include <chrono>

namespace hvd::ops::nccl {

// Returns 0 while the thread yields the processor only.
inline std::chrono::microseconds pause_after(std::chrono::steady_clock::duration passed) {
  using std::chrono::microseconds;
  constexpr microseconds kEager{20}, kShortest{5}, kLongest{1000};
  if (passed < kEager) return microseconds(0);
  return std::clamp(std::chrono::duration_cast<microseconds>(passed / 4), kShortest, kLongest);
}

}  // namespace hvd::ops::nccl
