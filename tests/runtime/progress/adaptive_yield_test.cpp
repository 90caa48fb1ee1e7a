#include <doctest/doctest.h>

#include "runtime/progress/progress.h"

using hvd::Clock;
using hvd::runtime::AdaptiveYield;
using std::chrono::microseconds;

namespace {

constexpr microseconds kAfterComputing{100};

// A waiter whose clock the test controls.
struct Waiter {
  AdaptiveYield yield{kAfterComputing};
  Clock::time_point now = Clock::time_point{} + std::chrono::hours(1);

  void begin_after(microseconds pause) {
    now += pause;
    yield.begin();
    yield.found_nothing(now);
  }
  // Returns whether the waiter yields its core after a spin of this duration.
  bool yields_after(microseconds spin) {
    now = yield.since() + spin;
    yield.found_nothing(now);
    return yield.is_over(now);
  }
  void yield_for(microseconds took) {
    yield.yielded(now, now + took);
    now += took;
  }
  // Simulates waits right after each other, as in a loop of small operations.
  void settle_in_a_loop() {
    begin_after(microseconds(1000));
    begin_after(microseconds(1));
  }
};

}  // namespace

TEST_CASE(
    "a waiter in a loop of small operations yields soon, and at once where yields bring the "
    "answer") {
  Waiter waiter;
  waiter.settle_in_a_loop();
  CHECK(!waiter.yields_after(microseconds(19)));
  REQUIRE(waiter.yields_after(microseconds(21)));
  waiter.yield_for(microseconds(6));
  waiter.yield.moved();
  waiter.begin_after(microseconds(1));
  CHECK(!waiter.yields_after(microseconds(1)));
  REQUIRE(waiter.yields_after(microseconds(2)));

  SUBCASE("not after a yield that brought nothing") {
    waiter.yield_for(microseconds(1));
    waiter.yield.moved();
    waiter.begin_after(microseconds(1));
    CHECK(!waiter.yields_after(microseconds(19)));
  }
  SUBCASE("not after a yield in which somebody else ran for long") {
    waiter.yield_for(microseconds(3000));
    waiter.yield.moved();
    waiter.begin_after(microseconds(1));
    CHECK(!waiter.yields_after(microseconds(19)));
    CHECK(waiter.yields_after(microseconds(21)));
  }
  SUBCASE("still after one that the answer followed later") {
    waiter.yield_for(microseconds(6));
    waiter.yield.found_nothing(waiter.now);
    waiter.yield.moved();
    waiter.begin_after(microseconds(1));
    CHECK(waiter.yields_after(microseconds(2)));
  }
}

TEST_CASE("a waiter that has computed before keeps its core for longer") {
  Waiter waiter;
  waiter.settle_in_a_loop();
  waiter.begin_after(microseconds(1000));
  CHECK(!waiter.yields_after(microseconds(99)));
  REQUIRE(waiter.yields_after(microseconds(101)));

  SUBCASE("in all spins of the wait, whatever a yield has brought") {
    waiter.yield_for(microseconds(50));
    waiter.yield.moved();
    waiter.yield.found_nothing(waiter.now);
    CHECK(!waiter.yields_after(microseconds(99)));
  }
  SUBCASE("not in a wait that follows at once") {
    waiter.yield.moved();
    waiter.begin_after(microseconds(1));
    CHECK(waiter.yields_after(microseconds(21)));
  }
}

TEST_CASE("a waiter that learns nothing about computations is as patient as ever") {
  AdaptiveYield yield{microseconds(0)};
  const auto now = Clock::time_point{} + std::chrono::hours(1);
  yield.begin();
  yield.found_nothing(now);
  CHECK(!yield.is_over(now + microseconds(19)));
  CHECK(yield.is_over(now + microseconds(21)));
}
