#include "runtime/progress/spin_budget.h"

#include <utility>

namespace hvd::runtime {
namespace {

using std::chrono::microseconds;

// Batching window: about as long as a backward pass, and short enough for programs that only poll.
constexpr std::chrono::milliseconds kSharedCoreWindow{10};

}  // namespace

void AdaptiveYield::found_nothing(Clock::time_point now) {
  answered_ = false;
  if (std::exchange(is_new_, false)) {
    is_spinning_ = false;
    is_long_ = now - last_ > kComputation;
  }
  if (!std::exchange(is_spinning_, true)) since_ = now;
  last_ = now;
}

void AdaptiveYield::moved() {
  if (std::exchange(answered_, false)) limit_ = kShort;
  is_spinning_ = false;
}

void AdaptiveYield::yielded(Clock::time_point from, Clock::time_point until) {
  last_ = until;
  if (is_long_) return;
  const auto took = until - from;
  answered_ = took > kEmptyYield && took < kAnswer;
  if (!answered_) limit_ = kUsual;
}

SpinBudget spin_budget(double cores, int local_ranks, bool one_host) {
  SpinBudget budget;
  const double share = cores / std::max(local_ranks, 1);
  // A wake-up costs 25-50 us, so spinning a few times as long pays if the peer is about to answer.
  // Ranks of one host that compute the same finish within a tenth of a step of each other, some
  // milliseconds, and a waiter yields meanwhile. Between hosts the kernel also needs these cores.
  if (share >= 1) {
    budget.waiter = one_host ? microseconds(6000) : microseconds(200);
    // Spin for longer than the 35 to 60 us of a yield between steps of TensorFlow.
    if (one_host) budget.after_computing = microseconds(100);
    budget.helper = share >= 2 ? microseconds(20) : microseconds(0);
    budget.helper_shares_core = share < 2;
  } else if (cores >= 1) {
    // Peers need this core: poll briefly, and let them run.
    budget.waiter = microseconds(100);
    budget.yields = true;
  }
  // With less than one core, do not spin: a spin uses quota that the peers need to reply.
  return budget;
}

std::chrono::microseconds gathering_time(const SpinBudget& budget, bool one_host,
                                         std::chrono::microseconds window) {
  if (!budget.helper_shares_core || !one_host) return window;
  return std::max<std::chrono::microseconds>(window, kSharedCoreWindow);
}

}  // namespace hvd::runtime
