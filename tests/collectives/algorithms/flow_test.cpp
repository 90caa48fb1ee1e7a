// Tests which ranks can still provide the data that a collective waits for.
#include "collectives/algorithms/flow.h"

#include <doctest/doctest.h>

#include <set>

using namespace hvd::collectives;

namespace {

// Waits for ranks 0, 1 and 2 in turn, like the waits for counters in shared memory.
class Arrivals final : public Condition {
 public:
  bool ready() override {
    while (next_ < 3 && arrived.contains(next_)) ++next_;
    return next_ == 3;
  }
  int waits_for() const override { return next_; }

  std::set<int> arrived;

 private:
  int next_ = 0;
};

Coroutine wait_for(Flow& flow, Condition& condition) { co_await flow.until(condition); }

int awaited_rank(Flow& flow, const std::set<int>& left) {
  return flow.awaited_rank_that_left([&](int rank) { return left.contains(rank); });
}

}  // namespace

TEST_CASE("a rank that did its part and left is not named in place of one that did not") {
  Flow flow;
  Arrivals arrivals;
  flow.start(wait_for(flow, arrivals));
  arrivals.arrived = {0, 1};
  CHECK(awaited_rank(flow, {1, 2}) == -1);
  CHECK(awaited_rank(flow, {0, 1, 2}) == 2);
  CHECK(awaited_rank(flow, {0, 1}) == -1);
  arrivals.arrived = {0, 1, 2};
  CHECK(awaited_rank(flow, {0, 1, 2}) == -1);
  CHECK(flow.poll());
  CHECK(!flow.running());
}

TEST_CASE("a flow that has ended waits for nobody") {
  Flow flow;
  CHECK(awaited_rank(flow, {0, 1, 2}) == -1);
}
