// How jobs end: shutdown with pending work, lost ranks, restarts.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "rendezvous/memory_store.h"
#include "rendezvous/wire/generation.h"
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

// Returns the rank whose loss or departure made `rank` fail, from its record in the store.
std::string left_by(Ranks& ranks, int rank) {
  const auto value =
      ranks.store().get(hvd::rendezvous::left_by_key(rank), Deadline::after_seconds(1));
  return value.ok() ? std::string(hvd::as_text(*value)) : "nobody";
}

}  // namespace

TEST_CASE("work that a peer never submits fails when that peer shuts down, naming both") {
  FOR_ALL_LINKS(options);
  Ranks ranks(3, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    if (rank == 1) {
      CHECK(ranks[1].shutdown(Deadline::after_seconds(20)).ok());
      return;
    }
    Work work = sum_of("pending", {1});
    const Status submitted = work.submit(ranks[rank]);
    const Status status = submitted.ok() ? work.finish(ranks[rank]) : submitted;
    CHECK(status.code() == Code::kAborted);
    INFO(status.message());
    CHECK(status.message().find("rank 1") != std::string::npos);
    CHECK(status.message().find("shut down") != std::string::npos);
    CHECK(status.message().find("allreduce 'pending' cannot run") != std::string::npos);
    Work later = sum_of("later", {1});
    const Status refused = later.submit(ranks[rank]);
    CHECK(refused.code() == Code::kAborted);
    CHECK(refused.message().find("allreduce 'later' cannot run") != std::string::npos);
    CHECK(refused.message().find("rank 1 has ended its program") != std::string::npos);
  });
}

TEST_CASE("a rank whose work fails because a peer left says so in the store, and no other does") {
  FOR_ALL_LINKS(options);
  Ranks ranks(3, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    if (rank == 0) {
      Work work = sum_of("pending", {1});
      const Status submitted = work.submit(ranks[rank]);
      CHECK((submitted.ok() ? work.finish(ranks[rank]) : submitted).code() == Code::kAborted);
    }
    if (rank == 2) {
      CHECK(ranks[rank].shutdown(Deadline::after_seconds(20)).ok());
    }
  });
  ranks.shutdown();
  CHECK(left_by(ranks, 0) == "2");
  CHECK(left_by(ranks, 1) == "nobody");
  CHECK(left_by(ranks, 2) == "nobody");
}

TEST_CASE("one's own pending work fails at shutdown") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  Work work = sum_of("mine", {1});
  REQUIRE(work.submit(ranks[0]).ok());
  ranks.shutdown();
  CHECK(work.finish(ranks[0]).code() == Code::kAborted);
}

TEST_CASE("an operation of every rank is done before a shutdown takes effect") {
  FOR_ALL_LINKS(options);
  for (int round = 0; round < 10; ++round) {
    Ranks ranks(4, options);
    require_started(ranks);
    ranks.each([&](int rank) {
      Work work(HVD_ALLREDUCE, "last", std::vector<float>(20000, 1), HVD_FLOAT32);
      const Status status = work.run(ranks[rank]);
      CHECK_MESSAGE(status.ok(), status.message());
      CHECK(ranks[rank].shutdown(Deadline::after_seconds(20)).ok());
    });
  }
}

TEST_CASE("a thread that waits learns of the shutdown") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  Work work = sum_of("waiting", {1});
  REQUIRE(work.submit(ranks[0]).ok());
  std::thread waiter([&] { CHECK(work.finish(ranks[0]).code() == Code::kAborted); });
  ranks.shutdown();
  waiter.join();
}

TEST_CASE("a lost rank fails everything on all ranks with the same cause") {
  RanksOptions options;
  options.machines = {0, 0, 1, 1, 2};
  Ranks ranks(5, options);
  require_started(ranks);
  std::vector<Status> statuses(5);
  ranks.each([&](int rank) {
    if (rank == 3) {
      ranks.world().lose(3);
      return;
    }
    Work work = sum_of("never", {1});
    const Status submitted = work.submit(ranks[rank]);
    statuses[static_cast<size_t>(rank)] = submitted.ok() ? work.finish(ranks[rank]) : submitted;
  });
  for (const int rank : {0, 1, 2, 4}) {
    const Status& status = statuses[static_cast<size_t>(rank)];
    CHECK(status.code() == Code::kAborted);
    CHECK(status.message() == "rank 3 is lost: the test cut its links");
    CHECK(sum_of("after", {1}).submit(ranks[rank]) == status);
  }
  ranks.shutdown();
  for (const int rank : {0, 1, 2, 4}) CHECK(left_by(ranks, rank) == "3");
}

TEST_CASE("a rank that fails by itself tells the others why") {
  FOR_ALL_LINKS(options);
  Ranks ranks(3, options);
  require_started(ranks);
  std::vector<Status> statuses(3);
  ranks.each([&](int rank) {
    Work work = sum_of("never", {1});
    const Status submitted = work.submit(ranks[rank]);
    if (rank == 2) ranks[rank].fail(hvd::internal_error("rank 2 found a defect"));
    statuses[static_cast<size_t>(rank)] = submitted.ok() ? work.finish(ranks[rank]) : submitted;
  });
  for (const Status& status : statuses) {
    INFO(status.message());
    CHECK(status.message().find("rank 2 found a defect") != std::string::npos);
  }
}

TEST_CASE(
    "an error of a library on a device is sent to the other ranks before its batches are aborted") {
  RanksOptions options;
  options.has_devices = true;
  Ranks ranks(3, options);
  require_started(ranks);
  ranks.world().failing = 1;
  ranks.each([&](int rank) {
    Work work = sum_of("on a device", {1});
    work.submission.device = 0;
    const Status status = work.run(ranks[rank]);
    CHECK_MESSAGE(status.message() == "rank 1: its library broke", status.message());
  });
  CHECK(ranks.world().sent_at_abort > ranks.world().sent_at_failure);
}

TEST_CASE("outputs that a library has made for a failed batch are released") {
  {
    RanksOptions options;
    options.has_devices = true;
    Ranks ranks(2, options);
    require_started(ranks);
    ranks.world().failing = 1;
    ranks.each([&](int rank) {
      Work work(HVD_ALLGATHER, "rows", std::vector<int32_t>(4, rank), HVD_INT32, {2, 2});
      work.submission.device = 0;
      CHECK(!work.run(ranks[rank]).ok());
    });
    CHECK(hvd::test::MemoryWorld::outputs == 1);
  }
  CHECK(hvd::test::MemoryWorld::outputs == 0);
}

TEST_CASE("a rank that never comes is named when the start takes too long") {
  hvd::test::MemoryWorld world({0, 0});
  const auto shared = std::make_shared<hvd::rendezvous::MemoryStore>();
  REQUIRE(shared
              ->set(std::string("g0/0/") + hvd::test::MemoryWorld::kKey,
                    hvd::as_bytes(world.address()), Deadline::after_seconds(1))
              .ok());
  hvd::runtime::Identity identity;
  identity.size = 2;
  hvd::runtime::RuntimeOptions options;
  options.controllers = {hvd::test::memory_controller()};
  options.ops = {hvd::test::memory_op()};
  options.start_deadline = Deadline::after_seconds(0.1);
  const auto runtime = hvd::runtime::Runtime::create(identity, shared, options);
  REQUIRE(!runtime.ok());
  CHECK(runtime.error().code() == Code::kDeadlineExceeded);
  CHECK(runtime.error().message().find("the start of rank 1") != std::string::npos);
}

TEST_CASE("with nothing pending no rank wakes up or sends anything") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  ranks.each([&](int rank) { CHECK(sum_of("x", {1}).run(ranks[rank]).ok()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the helper threads fall asleep
  const uint64_t steps[2] = {ranks[0].counts().steps, ranks[1].counts().steps};
  const uint64_t sent[2] = {ranks[0].counts().messages_sent, ranks[1].counts().messages_sent};
  std::this_thread::sleep_for(
      std::chrono::milliseconds(500));  // an event that must not happen cannot be awaited
  for (const int rank : {0, 1}) {
    CHECK(ranks[rank].counts().steps == steps[rank]);
    CHECK(ranks[rank].counts().messages_sent == sent[rank]);
  }
  ranks.each([&](int rank) { CHECK(sum_of("y", {1}).run(ranks[rank]).ok()); });
}
