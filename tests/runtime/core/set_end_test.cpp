// The end of a process set during speculative allreduces of its two members: the end may arrive
// before the announcement that completes an operation.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/rank_checks.h"

using hvd::Code;
using hvd::Deadline;
using hvd::Status;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::require_started;
using hvd::test::Work;

namespace {

// The members, on two machines. Member kRoot is the root of the set.
constexpr int kRoot = 1;
constexpr int kChild = 3;

void wait_until(const std::function<bool()>& is_true) {
  const Deadline deadline = Deadline::after_seconds(200);
  while (!is_true() && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(is_true());
}

RanksOptions with_set() {
  RanksOptions options;
  options.machines = {0, 0, 1, 1};
  options.process_sets = {{kRoot, kChild}};
  return options;
}

struct Sum : Work {
  explicit Sum(const char* name, int32_t set = 1)
      : Work(HVD_ALLREDUCE, name, std::vector<float>{1}, HVD_FLOAT32) {
    submission.process_set = set;
  }
};

void check_sum(const Work& work, const Status& status) {
  CHECK_MESSAGE(status.ok(), status.message());
  CHECK(work.result<float>()[0] == 2);
}

void check_left(const Status& status) {
  CHECK(status.code() == Code::kAborted);
  CHECK_MESSAGE(status.message().find("rank 3 has ended its program") != std::string::npos,
                status.message());
}

// The members run "w" twice, so that its name is cached.
void learn(Ranks& ranks, const std::vector<int>& members, int32_t set) {
  ranks.each([&](int rank) {
    if (std::ranges::find(members, rank) == members.end()) return;
    for (int round = 0; round < 2; ++round) CHECK(Sum("w", set).run(ranks[rank]).ok());
  });
}

// Returns when the root's tentative plan has arrived.
void submit_first(Work& work, Ranks& ranks, int root, int child) {
  const uint64_t before = ranks[child].counts().messages_received;
  REQUIRE(work.submit(ranks[root]).ok());
  wait_until([&] { return ranks[child].counts().messages_received > before; });
}

// The child completes "w" by an announcement that the test holds back while the root waits for it.
class HeldAnnouncement {
 public:
  explicit HeldAnnouncement(Ranks& ranks, int root = kRoot, int child = kChild, int32_t set = 1)
      : ranks_(ranks), root_(root), pending_("w", set) {
    learn(ranks, {root, child}, set);
    submit_first(pending_, ranks, root, child);
    ranks.world().hold(child, root);
    Sum announced("w", set);
    check_sum(announced, announced.run(ranks[child]));
  }
  void arrive() {
    ranks_.world().release();
    check_sum(pending_, finish());
  }
  Status finish() { return pending_.finish(ranks_[root_]); }

 private:
  Ranks& ranks_;
  const int root_;
  Sum pending_;
};

// A rank that shuts down. The other ranks shut down when the caller calls finish.
class Leaving {
 public:
  // Returns when `witness` has received one more message.
  Leaving(Ranks& ranks, int leaver, int witness) : ranks_(ranks), leaver_(leaver) {
    const uint64_t before = ranks[witness].counts().messages_received;
    thread_ = std::thread([this] { leave(leaver_); });
    wait_until([&] { return ranks[witness].counts().messages_received > before; });
  }
  void finish() {
    ranks_.each([&](int rank) {
      if (rank != leaver_) leave(rank);
    });
    thread_.join();
  }

 private:
  void leave(int rank) { CHECK(ranks_[rank].shutdown(Deadline::after_seconds(20)).ok()); }

  Ranks& ranks_;
  const int leaver_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("a member's leaving does not overtake its last operation") {
  Ranks ranks(4, with_set());
  require_started(ranks);
  HeldAnnouncement held(ranks);
  Leaving leaving(ranks, kChild, kRoot);
  held.arrive();
  leaving.finish();
}

TEST_CASE("a rank of two that leaves completes what the other has completed") {
  RanksOptions options;
  options.machines = {0, 1};
  Ranks ranks(2, options);
  require_started(ranks);
  HeldAnnouncement held(ranks, 0, 1, 0);
  Leaving leaving(ranks, 0, 1);
  held.arrive();
  leaving.finish();
}

TEST_CASE("the root of a set that learns of a leaving last waits for no announcement") {
  Ranks ranks(4, with_set());
  require_started(ranks);
  learn(ranks, {kRoot, kChild}, 1);
  ranks.world().hold(0, kRoot);
  Leaving leaving(ranks, kChild, kRoot);
  Sum late("w");
  REQUIRE(late.submit(ranks[kRoot]).ok());
  ranks.world().release();
  check_left(late.finish(ranks[kRoot]));
  leaving.finish();
}

TEST_CASE("a member that leaves instead of an announcement ends the set") {
  Ranks ranks(4, with_set());
  require_started(ranks);
  learn(ranks, {kRoot, kChild}, 1);
  Sum pending("w");
  submit_first(pending, ranks, kRoot, kChild);
  Leaving leaving(ranks, kChild, kRoot);
  check_left(pending.finish(ranks[kRoot]));
  leaving.finish();
}

TEST_CASE("a failure ends a set at once whose root waits for an announcement") {
  Ranks ranks(4, with_set());
  require_started(ranks);
  HeldAnnouncement held(ranks);
  std::thread leaving([&] { (void)ranks[kChild].shutdown(Deadline::after_seconds(20)); });
  ranks[2].fail(hvd::aborted("rank 2 gives up"));
  CHECK(held.finish().message() == "rank 2 gives up");
  leaving.join();
}

TEST_CASE("the removal of a set does not overtake an operation of its members") {
  Ranks ranks(4, with_set());
  require_started(ranks);
  HeldAnnouncement held(ranks);
  hvd_handle handles[4] = {};
  for (int rank = 0; rank < 4; ++rank) {
    REQUIRE(ranks[rank].remove_process_set(1, &handles[rank]).ok());
  }
  wait_until([&] { return ranks[kRoot].process_sets().find(1) == nullptr; });
  held.arrive();
  for (int rank = 0; rank < 4; ++rank) {
    const auto status = ranks[rank].wait(handles[rank], Deadline::after_seconds(200));
    CHECK((status && status->ok()));
  }
}
