// Threads that submit, sleep and must be woken, without a deadline: a lost wake-up stops them
// forever, and the watchdog reports it.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <random>
#include <thread>

#include "runtime/rank_checks.h"

using hvd::Deadline;
using hvd::Status;
using hvd::runtime::Runtime;
using hvd::test::Links;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::sum_of;
using hvd::test::Work;

namespace {

// Returns the time without a completed round after which the test counts as hanging.
std::chrono::seconds timeout() {
  const char* seconds = std::getenv("HVD_TEST_WATCHDOG_SECONDS");
  return std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 30);
}

// Runs body(completed), which counts its rounds, and ends the process if the count stops: sleeping
// threads cannot be joined.
template <typename Body>
void watched(const Body& body) {
  std::atomic<int> completed{0};
  auto over = std::async(std::launch::async, [&] { body(completed); });
  for (int seen = 0; over.wait_for(timeout()) != std::future_status::ready;) {
    const int now = completed.load();
    if (now == seen) {
      std::fprintf(
          stderr, "watchdog: nothing has completed since round %d: a sleeper was not woken\n", now);
      std::_Exit(1);
    }
    seen = now;
  }
  over.get();
}

// Returns at once, or after a random delay in which other threads may fall asleep.
void dawdle(std::minstd_rand& random) {
  const unsigned dice = random() % 8;
  if (dice < 5) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
  if (dice == 5) std::this_thread::yield();
}

void wait_for(Work& work, Runtime& runtime) {
  CHECK(runtime.wait(work.handle, Deadline::never())->ok());
}

void end(Work& work, Runtime& runtime) {
  wait_for(work, runtime);
  CHECK(runtime.release(work.handle).ok());
  CHECK(work.result<float>()[0] == 2);
}

// Submits `first`, which the peer does not submit yet, so that this rank's driving thread falls
// asleep: a waiting thread in even rounds, the helper thread in odd rounds. `second` must then wake
// the sleeper, because the peer does nothing before `second` completes.
void bring(Runtime& runtime, std::atomic<int>& peer_rounds, int round, std::minstd_rand& random) {
  Work first = sum_of("first");
  Work second = sum_of("second");
  CHECK(first.submit(runtime).ok());
  std::thread driver;
  if (round % 2 == 0) driver = std::thread([&] { wait_for(first, runtime); });
  dawdle(random);
  CHECK(second.submit(runtime).ok());
  if (round % 2 == 0)
    wait_for(second, runtime);
  else
    peer_rounds.wait(round);
  if (driver.joinable()) driver.join();
  end(first, runtime);
  end(second, runtime);
}

void take(Runtime& runtime, std::atomic<int>& rounds) {
  Work second = sum_of("second");
  CHECK(second.submit(runtime).ok());
  end(second, runtime);
  ++rounds;
  rounds.notify_all();
  Work first = sum_of("first");
  CHECK(first.submit(runtime).ok());
  end(first, runtime);
}

void check_sleepers(Links links, int rounds) {
  watched([&](std::atomic<int>& completed) {
    RanksOptions options;
    options.links = links;
    CHECK(options.settings.set("cycle_time", "0.1")
              .ok());  // ranks sleep soon, not until a window ends
    Ranks ranks(2, options);
    hvd::test::require_started(ranks);
    ranks.each([&](int rank) {
      std::minstd_rand random(1);
      for (int round = 0; round < rounds; ++round) {
        // The root submits first in one half of the rounds, the other rank in the other half.
        if ((rank == 0) == (round < rounds / 2))
          bring(ranks[rank], completed, round, random);
        else
          take(ranks[rank], completed);
      }
    });
  });
}

}  // namespace

TEST_CASE("a sleeper is woken, whichever rank brings the work") {
  check_sleepers(Links::kMemory, HVD_TEST_ROUNDS);
}

TEST_CASE("a sleeper is woken over the built-in links too") {
  if (!hvd::test::has_builtin_links()) return;
  check_sleepers(Links::kBuiltin, HVD_TEST_ROUNDS);
}
