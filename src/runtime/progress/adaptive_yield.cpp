#include "runtime/progress/adaptive_yield.h"

#include <utility>

namespace hvd::runtime {

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

}  // namespace hvd::runtime
