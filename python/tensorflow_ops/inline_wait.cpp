#include "inline_wait.h"

#include <algorithm>
#include <vector>

#include "library.h"

namespace hvd::tensorflow {

namespace {

// Ranks that compute the same differ by some milliseconds at most.
constexpr double kSeconds = 0.01;
constexpr uint32_t kMostDoublings = 8;

}  // namespace

bool InlineWait::finishes(PendingOperation* work) {
  if (!is_last_) return false;
  // Runs of one node may be at once: none counts below zero.
  for (uint32_t left = skips_.load(); left > 0;) {
    if (skips_.compare_exchange_weak(left, left - 1)) return false;
  }
  std::vector<char> error(kErrorSize);
  const int status = library()->wait(work->handle, kSeconds, error.data(), error.size());
  if (status == HVD_IN_PROGRESS) {
    const uint32_t doublings = std::min(wasted_.fetch_add(1), kMostDoublings);
    skips_.store((1U << doublings) - 1);
    return false;
  }
  wasted_.store(0);
  hand_over(work, status, error.data());
  return true;
}

}  // namespace hvd::tensorflow
