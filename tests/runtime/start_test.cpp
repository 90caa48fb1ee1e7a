// Work that is submitted before its inputs are ready, and begins with hvd_start.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/rank_checks.h"

using hvd::Code;
using hvd::Deadline;
using hvd::Status;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::require_started;
using hvd::test::sum_of;
using hvd::test::Work;

namespace {

Status submit_for_later(Work& work, hvd::runtime::Runtime& runtime) {
  work.submission.flags = HVD_AWAITS_START;
  return work.submit(runtime);
}

bool is_done(Work& work, hvd::runtime::Runtime& runtime) {
  bool done = false;
  CHECK(runtime.poll(work.handle, &done).ok());
  return done;
}

}  // namespace

TEST_CASE("work that awaits its start reads its inputs after it, and holds up no other work") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    Work late = sum_of("late", {0, 0});
    REQUIRE(submit_for_later(late, ranks[rank]).ok());
    for (int step = 0; step < 3; ++step) {
      Work other = sum_of("other", {1});
      CHECK(other.run(ranks[rank]).ok());
      CHECK_FALSE(is_done(late, ranks[rank]));
    }
    const float values[] = {1.0f + static_cast<float>(rank), 10};
    std::memcpy(late.input.data(), values, sizeof values);
    CHECK(ranks[rank].start(late.handle).ok());
    CHECK(ranks[rank].start(late.handle).ok());  // a second call has no effect
    const Status status = late.finish(ranks[rank]);
    CHECK_MESSAGE(status.ok(), status.message());
    CHECK(late.result<float>() == std::vector<float>{3, 20});
    CHECK(ranks[rank].start(late.handle).code() == Code::kNotFound);
  });
}

TEST_CASE("a waiting rank sleeps until another thread starts its work") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    for (int step = 0; step < 100; ++step) {
      Work first = sum_of("first", {1}), second = sum_of("second", {2});
      REQUIRE(submit_for_later(first, ranks[rank]).ok());
      REQUIRE(submit_for_later(second, ranks[rank]).ok());
      std::thread starter([&] {
        // Before the driver takes the work from the queue, during its spin, and during its sleep.
        if (step % 10 == rank) std::this_thread::sleep_for(std::chrono::milliseconds(step % 4 * 4));
        CHECK(ranks[rank].start(rank == 0 ? first.handle : second.handle).ok());
        CHECK(ranks[rank].start(rank == 0 ? second.handle : first.handle).ok());
      });
      const Status status = first.finish(ranks[rank]);
      CHECK_MESSAGE(status.ok(), status.message());
      starter.join();
      CHECK(second.finish(ranks[rank]).ok());
      CHECK(second.result<float>() == std::vector<float>{4});
    }
  });
}

TEST_CASE("a rank that joins after a start still contributes the started work") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    for (int step = 0; step < 50; ++step) {
      Work work = sum_of("work", {1.0f + static_cast<float>(rank)});
      REQUIRE(submit_for_later(work, ranks[rank]).ok());
      CHECK(ranks[rank].start(work.handle).ok());
      Work join(HVD_JOIN, "", std::vector<float>{}, HVD_FLOAT32);
      CHECK(join.run(ranks[rank]).ok());
      CHECK(work.finish(ranks[rank]).ok());
      CHECK(work.result<float>() == std::vector<float>{3});
    }
  });
}

TEST_CASE("work that was never started fails when a rank leaves, or when the job fails") {
  FOR_ALL_LINKS(options);
  for (const bool fails : {false, true}) {
    CAPTURE(fails);
    Ranks ranks(2, options);
    require_started(ranks);
    ranks.each([&](int rank) {
      Work work = sum_of("work", {1});
      REQUIRE(submit_for_later(work, ranks[rank]).ok());
      Work all(HVD_BARRIER, "", std::vector<float>{}, HVD_FLOAT32);
      CHECK(all.run(ranks[rank]).ok());
      if (rank == 1) {
        if (fails) {
          ranks[rank].fail(hvd::aborted("the test ends it"));
        } else {
          CHECK(ranks[rank].shutdown(Deadline::after_seconds(20)).ok());
        }
      }
      CHECK(work.finish(ranks[rank]).code() == Code::kAborted);
    });
  }
}
