#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "launcher/allocation/host_pool.h"

namespace hvd::launcher {
namespace {

// Returns a time of the tests' clock, which is unrelated to the real clock.
HostCooldown::Time at(double seconds) {
  return HostCooldown::Time() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

HostCooldown::Random always(double number) {
  return [number] { return number; };
}

// The delays of a host that fails again as soon as it is usable.
std::vector<double> delays_of(CooldownRange range, int failures, HostCooldown::Random random) {
  HostCooldown cooldown(range, std::move(random));
  std::vector<double> delays;
  double now = 5;
  for (int i = 1; i <= failures; ++i) {
    const auto exclusion = cooldown.record_failure("a", at(now));
    REQUIRE(exclusion);
    CHECK(exclusion->failures == i);
    REQUIRE(exclusion->delay);
    delays.push_back(*exclusion->delay);
    now += *exclusion->delay;
    CHECK_FALSE(cooldown.is_usable("a", at(now - 0.01)));
    CHECK(cooldown.is_usable("a", at(now + 0.01)));
    now += 0.01;
  }
  return delays;
}

using Delays = std::vector<double>;

}  // namespace

TEST_CASE("the delay of a host doubles with each failure, up to the limit") {
  CHECK(delays_of({10, 100}, 5, always(0)) == Delays{20, 40, 80, 100, 100});
  CHECK(delays_of({10, 100}, 5, always(0.5)) == Delays{25, 45, 85, 100, 100});
  CHECK(delays_of({1, 2}, 3, always(0.9)) == Delays{2, 2, 2});
  CHECK(delays_of({7, 7}, 2, always(0.9)) == Delays{7, 7});
  CHECK(delays_of({1, 3600}, 3000, always(0)).back() == 3600);
}

TEST_CASE("random delays of a host grow and stay within the range") {
  std::mt19937 generator(7);
  std::uniform_real_distribution<double> numbers(0, 1);
  const Delays delays = delays_of({10, 1000}, 10, [&] { return numbers(generator); });
  for (size_t i = 0; i < delays.size(); ++i) {
    CHECK(delays[i] >= 10);
    CHECK(delays[i] <= 1000);
    if (i > 0) CHECK((delays[i] > delays[i - 1] || delays[i] == 1000));
  }
}

TEST_CASE("without a range a failed host is never usable again") {
  HostCooldown cooldown({}, always(0));
  CHECK(cooldown.is_usable("a", at(0)));
  const auto exclusion = cooldown.record_failure("a", at(0));
  REQUIRE(exclusion);
  CHECK_FALSE(exclusion->delay);
  CHECK_FALSE(cooldown.is_usable("a", at(1e9)));
  CHECK_FALSE(cooldown.next_return(at(0)));
  CHECK(cooldown.is_usable("b", at(0)));
  CHECK_FALSE(cooldown.record_failure("a", at(50)));
}

TEST_CASE("a failure during the delay changes nothing") {
  HostCooldown cooldown(CooldownRange{10, 100}, always(0));
  CHECK(cooldown.record_failure("a", at(0)));
  CHECK_FALSE(cooldown.record_failure("a", at(19)));
  CHECK_FALSE(cooldown.is_usable("a", at(19.9)));
  CHECK(cooldown.is_usable("a", at(20)));
  const auto second = cooldown.record_failure("a", at(21));
  REQUIRE(second);
  CHECK(second->failures == 2);
  CHECK(second->delay == 40);
}

TEST_CASE("the next return is the earliest one of the hosts that still wait") {
  HostCooldown cooldown(CooldownRange{10, 100}, always(0));
  CHECK_FALSE(cooldown.next_return(at(0)));
  CHECK(cooldown.record_failure("a", at(0)));
  CHECK(cooldown.record_failure("b", at(5)));
  CHECK(cooldown.next_return(at(6)) == at(20));
  CHECK(cooldown.next_return(at(20)) == at(25));
  CHECK_FALSE(cooldown.next_return(at(25)));
}

TEST_CASE("a host that left discovery and came back has no failures") {
  HostCooldown cooldown({}, always(0));
  const std::vector<std::string> both{"a", "b"}, only_b{"b"};
  cooldown.set_discovered(both);
  CHECK(cooldown.record_failure("a", at(0)));
  cooldown.set_discovered(both);
  CHECK_FALSE(cooldown.is_usable("a", at(1)));
  cooldown.set_discovered(only_b);
  // Ranks that end because their host is removed do not count as failures of the host.
  CHECK_FALSE(cooldown.record_failure("a", at(2)));
  cooldown.set_discovered(both);
  CHECK(cooldown.is_usable("a", at(3)));
  const auto again = cooldown.record_failure("a", at(4));
  REQUIRE(again);
  CHECK(again->failures == 1);
}

TEST_CASE("the sentence about an excluded host names the flag that changes it") {
  CHECK(about_exclusion("b", {.failures = 1, .delay = {}}) ==
        "host b is not used again in this job, after a failure there; give "
        "--blacklist-cooldown-range LO HI to use it again after LO to HI seconds");
  CHECK(about_exclusion("b", {.failures = 2, .delay = 43.7}) ==
        "host b is not used for 44 s, after failure 2 there");
}

}  // namespace hvd::launcher
