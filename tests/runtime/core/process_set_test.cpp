// Process sets of in-process runtimes: added and removed while other ranks work, overlapping,
// concurrent, in any order.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <numeric>
#include <random>

#include "base/text.h"
#include "runtime/rank_checks.h"

using hvd::cat;
using hvd::Code;
using hvd::Deadline;
using hvd::Status;
using hvd::runtime::Runtime;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::require_started;
using hvd::test::Work;

namespace {

// Waits for the handle and releases it. *id gets the id of the registered set.
Status finish(Runtime& runtime, hvd_handle handle, int32_t* id = nullptr) {
  const auto status = runtime.wait(handle, Deadline::after_seconds(200));
  if (!status) return hvd::deadline_exceeded("the registration is not complete after 20 s");
  if (status->ok() && id != nullptr) {
    hvd_output output{};
    REQUIRE(runtime.output(handle, 0, &output).ok());
    *id = output.process_set;
  }
  REQUIRE(runtime.release(handle).ok());
  return *status;
}

Status add(Runtime& runtime, std::vector<int32_t> ranks, int32_t* id = nullptr) {
  hvd_handle handle = 0;
  if (Status status = runtime.add_process_set(std::move(ranks), &handle); !status.ok()) {
    return status;
  }
  return finish(runtime, handle, id);
}

Status remove(Runtime& runtime, int32_t id) {
  hvd_handle handle = 0;
  if (Status status = runtime.remove_process_set(id, &handle); !status.ok()) return status;
  return finish(runtime, handle);
}

// Calls every operation of a set on one of its members. Sets have 2 members or more.
void check_all_operations(Runtime& runtime, int32_t id, const std::vector<int32_t>& members) {
  const int32_t rank = runtime.identity().rank;
  const auto size = static_cast<int64_t>(members.size());
  const auto index = std::find(members.begin(), members.end(), rank) - members.begin();
  const double sum = std::accumulate(members.begin(), members.end(), 0.0);
  const auto run = [&](Work& work) {
    work.submission.process_set = id;
    const Status status = work.run(runtime);
    CHECK_MESSAGE(status.ok(), status.message());
  };
  const std::vector<double> mine(static_cast<size_t>(size), rank);

  Work reduce(HVD_ALLREDUCE, "reduce", mine, HVD_FLOAT64);
  run(reduce);
  CHECK(reduce.result<double>()[0] == sum);
  Work average(HVD_ALLREDUCE, "average", mine, HVD_FLOAT64);
  average.submission.reduce_op = HVD_AVERAGE;
  run(average);
  CHECK(average.result<double>()[0] == doctest::Approx(sum / static_cast<double>(size)));
  Work broadcast(HVD_BROADCAST, "broadcast", mine, HVD_FLOAT64);
  broadcast.submission.root_rank = members.back();
  run(broadcast);
  CHECK(broadcast.result<double>()[0] == members.back());
  Work barrier(HVD_BARRIER, "", std::vector<double>{}, HVD_FLOAT64);
  run(barrier);

  const auto owned = [&](Work& work, auto&& check) {
    work.submission.process_set = id;
    REQUIRE(work.submit(runtime).ok());
    const auto status = runtime.wait(work.handle, Deadline::after_seconds(200));
    REQUIRE(status);
    REQUIRE_MESSAGE(status->ok(), status->message());
    hvd_output output{};
    REQUIRE(runtime.output(work.handle, 0, &output).ok());
    check(output, static_cast<const double*>(output.data));
    REQUIRE(runtime.release(work.handle).ok());
  };
  Work gather(HVD_ALLGATHER, "gather", std::vector<double>(static_cast<size_t>(index) + 1, rank),
              HVD_FLOAT64);
  owned(gather, [&](const hvd_output& output, const double* data) {
    CHECK(output.shape[0] == size * (size + 1) / 2);
    CHECK(data[0] == members[0]);
    CHECK(data[1] == members[1]);
    CHECK(data[2] == members[1]);
  });
  Work exchange(HVD_ALLTOALL, "exchange", mine, HVD_FLOAT64);
  owned(exchange, [&](const hvd_output& output, const double* data) {
    CHECK(output.received_split_count == size);
    for (int64_t i = 0; i < size; ++i) CHECK(data[i] == members[static_cast<size_t>(i)]);
  });
  Work scatter(HVD_REDUCESCATTER, "scatter",
               std::vector<double>(static_cast<size_t>(size) + 1, rank), HVD_FLOAT64);
  owned(scatter, [&](const hvd_output& output, const double* data) {
    CHECK(output.shape[0] == (index == 0 ? 2 : 1));
    CHECK(data[0] == sum);
  });
}

}  // namespace

TEST_CASE("every operation works in a set, beside the same names in others") {
  FOR_ALL_LINKS(options);
  const std::vector<std::vector<int32_t>> sets{{0, 1, 2, 3, 4}, {0, 2, 4}, {1, 3}, {2, 3, 4}};
  Ranks ranks(5, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    for (size_t i = 1; i < sets.size(); ++i) {
      int32_t id = -1;
      const Status status = add(ranks[rank], sets[i], &id);
      REQUIRE_MESSAGE(status.ok(), status.message());
      CHECK(id == static_cast<int32_t>(i));
    }
    CHECK(ranks[rank].process_sets().ids() == std::vector<int32_t>{0, 1, 2, 3});
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < sets.size(); ++i) {
        const bool member = std::binary_search(sets[i].begin(), sets[i].end(), rank);
        if (member) check_all_operations(ranks[rank], static_cast<int32_t>(i), sets[i]);
      }
    }
  });
}

TEST_CASE("members alone add and remove named sets, in their own orders and with equal ranks") {
  FOR_ALL_LINKS(options);
  const std::vector<std::pair<std::string, std::vector<int32_t>>> sets{{"one", {0, 1, 2, 3, 4}},
                                                                       {"another", {0, 1, 2, 3, 4}},
                                                                       {"leaves", {3, 4}},
                                                                       {"again", {3, 4}},
                                                                       {"middle", {1, 2, 3}}};
  Ranks ranks(5, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    std::vector<hvd_handle> handles(sets.size());
    std::vector<int32_t> ids(sets.size(), -1);
    const auto for_mine = [&](auto&& use) {
      for (size_t i = 0; i < sets.size(); ++i) {
        const size_t set = (i + static_cast<size_t>(rank)) % sets.size();
        const auto& members = sets[set].second;
        if (std::binary_search(members.begin(), members.end(), rank)) use(set, members);
      }
    };
    for_mine([&](size_t set, const std::vector<int32_t>& members) {
      REQUIRE(ranks[rank].add_named_set(sets[set].first, members, &handles[set]).ok());
    });
    for_mine([&](size_t set, const std::vector<int32_t>&) {
      const Status status = finish(ranks[rank], handles[set], &ids[set]);
      REQUIRE_MESSAGE(status.ok(), status.message());
    });
    for (size_t set = 0; set < sets.size(); ++set) {
      if (ids[set] >= 0) check_all_operations(ranks[rank], ids[set], sets[set].second);
    }
    for_mine([&](size_t set, const std::vector<int32_t>&) {
      REQUIRE(ranks[rank].remove_process_set(ids[set], &handles[set]).ok());
    });
    for_mine([&](size_t set, const std::vector<int32_t>&) {
      const Status status = finish(ranks[rank], handles[set]);
      REQUIRE_MESSAGE(status.ok(), status.message());
    });
    Work barrier(HVD_BARRIER, "", std::vector<double>{}, HVD_FLOAT64);
    REQUIRE(barrier.run(ranks[rank]).ok());
    CHECK(ranks[rank].process_sets().ids() == std::vector<int32_t>{0});
    hvd_handle handle = 0;
    if (rank == 0) {
      CHECK(ranks[rank].add_named_set("mine", {1, 2}, &handle).code() == Code::kInvalidArgument);
    }
  });
}

TEST_CASE("sets that share ranks complete whatever the orders") {
  FOR_ALL_LINKS(options);
  const std::vector<std::vector<int32_t>> sets{{0, 1, 2, 3}, {0, 1}, {1, 2},
                                               {2, 3},       {0, 3}, {0, 1, 2}};
  Ranks ranks(4, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    for (size_t i = 1; i < sets.size(); ++i) REQUIRE(add(ranks[rank], sets[i]).ok());
    std::mt19937 random(static_cast<unsigned>(rank) + 7);
    for (int round = 0; round < 10; ++round) {
      std::vector<size_t> order(sets.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      std::deque<Work> works;
      std::vector<double> expected;
      for (const size_t i : order) {
        if (!std::binary_search(sets[i].begin(), sets[i].end(), rank)) continue;
        for (const size_t count : {3U, 5000U}) {
          works.emplace_back(HVD_ALLREDUCE, "n" + std::to_string(count),
                             std::vector<double>(count, rank), HVD_FLOAT64);
          works.back().submission.process_set = static_cast<int32_t>(i);
          REQUIRE(works.back().submit(ranks[rank]).ok());
          expected.push_back(std::accumulate(sets[i].begin(), sets[i].end(), 0.0));
        }
      }
      for (size_t i = 0; i < works.size(); ++i) {
        const Status status = works[i].finish(ranks[rank]);
        REQUIRE_MESSAGE(status.ok(), status.message());
        CHECK(works[i].result<double>().back() == expected[i]);
      }
    }
  });
}

TEST_CASE("sets given at the start are there from the first moment") {
  RanksOptions options;
  options.process_sets = {{1, 0}, {2}};
  Ranks ranks(3, options);
  require_started(ranks);
  CHECK(ranks[2].process_sets().find(1)->ranks == std::vector<int32_t>{0, 1});
  CHECK(ranks[2].process_sets().find(2)->index == 0);
  ranks.each([&](int rank) {
    if (rank < 2) check_all_operations(ranks[rank], 1, {0, 1});
  });
}

TEST_CASE("ids that were given back are given again, the oldest first, and mean the new set") {
  FOR_ALL_LINKS(options);
  Ranks ranks(3, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    REQUIRE(add(ranks[rank], {0, 1}).ok());
    REQUIRE(add(ranks[rank], {1, 2}).ok());
    if (rank < 2) check_all_operations(ranks[rank], 1, {0, 1});
    REQUIRE(remove(ranks[rank], 2).ok());
    REQUIRE(remove(ranks[rank], 1).ok());
    for (int round = 0; round < 20; ++round) {
      int32_t id = 0;
      REQUIRE(add(ranks[rank], {0, 2}, &id).ok());
      CHECK(id == (round % 2 == 0 ? 2 : 1));
      if (rank != 1) check_all_operations(ranks[rank], id, {0, 2});
      REQUIRE(remove(ranks[rank], id).ok());
    }
  });
}

TEST_CASE("cached work of all ranks goes on among sets that come and go") {
  FOR_ALL_LINKS(options);
  Ranks ranks(4, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    const auto work_of_all = [&] {
      Work work(HVD_ALLREDUCE, "w", std::vector<double>{1}, HVD_FLOAT64);
      const Status status = work.run(ranks[rank]);
      CHECK_MESSAGE(status.ok(), status.message());
      CHECK(work.result<double>()[0] == 4);
      Work barrier(HVD_BARRIER, "", std::vector<double>{}, HVD_FLOAT64);
      CHECK(barrier.run(ranks[rank]).ok());
    };
    for (int i = 0; i < 3; ++i) work_of_all();  // uses the name's id from now on
    for (int round = 0; round < 5; ++round) {
      REQUIRE(add(ranks[rank], {2, 3}).ok());
      work_of_all();
      REQUIRE(remove(ranks[rank], 1).ok());
      work_of_all();
    }
  });
}

TEST_CASE("ranks that register different sets all get an error that names both, and go on") {
  Ranks ranks(3);
  require_started(ranks);
  ranks.each([&](int rank) {
    const Status status =
        add(ranks[rank], rank == 2 ? std::vector<int32_t>{0, 2} : std::vector<int32_t>{0, 1});
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK_MESSAGE(
        status.message().find("process set [0, 1] on rank 0, process set [0, 2] on rank 2") !=
            std::string::npos,
        status.message());
    CHECK(add(ranks[rank], {1, 2}).ok());
    const Status mixed = rank == 0 ? remove(ranks[rank], 1) : add(ranks[rank], {0, 1});
    CHECK_MESSAGE(mixed.message().find("remove_process_set(1) on rank 0") != std::string::npos,
                  mixed.message());
    const Status again = add(ranks[rank], {2, 1});
    CHECK(again.code() == Code::kAlreadyExists);
    CHECK(add(ranks[rank], {2, 1, 0}).code() == Code::kAlreadyExists);  // set 0 has these ranks
    CHECK(remove(ranks[rank], 1).ok());
  });
}

TEST_CASE("ranks that cannot form a set, and a set without this rank, are refused at once") {
  Ranks ranks(2);
  require_started(ranks);
  ranks.each([&](int rank) {
    REQUIRE(add(ranks[rank], {1}).ok());
    hvd_handle handle = 0;
    CHECK(ranks[rank].add_process_set({0, 0}, &handle).message().find("duplicate rank: 0") !=
          std::string::npos);
    CHECK(ranks[rank].add_process_set({0, 2}, &handle).message().find("invalid rank: 2") !=
          std::string::npos);
    CHECK(!ranks[rank].add_process_set({}, &handle).ok());
    CHECK(!ranks[rank].remove_process_set(0, &handle).ok());
    CHECK(ranks[rank].remove_process_set(5, &handle).code() == Code::kNotFound);
    Work work(HVD_ALLREDUCE, "w", std::vector<float>{1}, HVD_FLOAT32);
    work.submission.process_set = 9;
    CHECK(work.submit(ranks[rank]).message() ==
          "allreduce 'w': Process set provided does not exist: 9; add it on every rank first");
    if (rank == 1) return;
    work.submission.process_set = 1;
    CHECK(work.submit(ranks[rank]).message() ==
          "allreduce 'w': Rank 0 is not a member of process set 1, which has ranks [1]");
    Work root(HVD_BROADCAST, "r", std::vector<float>{1}, HVD_FLOAT32);
    root.submission.root_rank = 2;
    CHECK(root.submit(ranks[rank]).message().find("invalid root rank 2") != std::string::npos);
  });
}

TEST_CASE("removing a set fails what not every member has submitted") {
  Ranks three(3);
  require_started(three);
  three.each([&](int rank) {
    REQUIRE(add(three[rank], {0, 1}).ok());
    Work work(HVD_ALLREDUCE, "w", std::vector<float>{1}, HVD_FLOAT32);
    work.submission.process_set = 1;
    if (rank == 1) REQUIRE(work.submit(three[rank]).ok());
    CHECK(remove(three[rank], 1).ok());
    if (rank == 1) {
      const Status status = work.finish(three[rank]);
      CHECK(status.code() == Code::kNotFound);
      CHECK(status.message().find("cannot run: process set 1 was removed before every member") !=
            std::string::npos);
    }
    Work after(HVD_ALLREDUCE, "w", std::vector<float>{1}, HVD_FLOAT32);
    CHECK(after.run(three[rank]).ok());
    CHECK(after.result<float>()[0] == 3);
  });
}

TEST_CASE("a set that is removed twice at once is gone once, and all ranks get the same result") {
  for (unsigned seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    RanksOptions options;
    options.late = std::chrono::microseconds(500);
    options.late_seed = seed;
    Ranks three(3, options);
    require_started(three);
    std::vector<Status> second(3);
    std::vector<Code> of_work(2);
    three.each([&](int rank) {
      Runtime& runtime = three[rank];
      REQUIRE(add(runtime, {0, 1, 2}).code() == Code::kAlreadyExists);
      REQUIRE(add(runtime, {0, 1}).ok());
      hvd_handle handles[2] = {};
      REQUIRE(runtime.remove_process_set(1, &handles[0]).ok());
      REQUIRE(runtime.remove_process_set(1, &handles[1]).ok());
      Work work(HVD_ALLREDUCE, "w", std::vector<float>{1}, HVD_FLOAT32);
      if (rank != 2) {
        work.submission.process_set = 1;
        // Both members run it before the end of the set, or both after it.
        of_work[static_cast<size_t>(rank)] = work.run(runtime).code();
      }
      CHECK(finish(runtime, handles[0]).ok());
      second[static_cast<size_t>(rank)] = finish(runtime, handles[1]);
      // A third removal fails too: the set is unknown.
      CHECK(remove(runtime, 1).code() == Code::kNotFound);
      int32_t id = -1;
      CHECK(add(runtime, {1, 2}, &id).ok());
      CHECK(id == 1);
    });
    CHECK(of_work[0] == of_work[1]);
    CHECK((of_work[0] == Code::kOk || of_work[0] == Code::kNotFound));
    for (const Status& status : second) {
      CHECK(status.code() == Code::kNotFound);
      CHECK(status.message() == "process set 1 does not exist");
    }
  }
}

TEST_CASE("a rank that is no member gets no message of a set's work") {
  Ranks ranks(3);
  require_started(ranks);
  ranks.each([&](int rank) { REQUIRE(add(ranks[rank], {0, 1}).ok()); });
  const auto before = ranks[2].counts();
  ranks.each([&](int rank) {
    if (rank == 2) return;
    for (int i = 0; i < 50; ++i) check_all_operations(ranks[rank], 1, {0, 1});
  });
  const auto after = ranks[2].counts();
  CHECK(after.messages_received == before.messages_received);
  CHECK(after.messages_sent == before.messages_sent);
}

TEST_CASE("a member's shutdown in the middle of a set's work ends it everywhere") {
  FOR_ALL_LINKS(options);
  for (int round = 0; round < 10; ++round) {
    Ranks ranks(4, options);
    require_started(ranks);
    ranks.each([&](int rank) {
      REQUIRE(add(ranks[rank], {1, 2, 3}).ok());
      if (rank == 0) return;
      if (rank == 2) {
        (void)ranks[rank].shutdown(Deadline::after_seconds(20));
        return;
      }
      for (int i = 0;; ++i) {
        Work work(HVD_ALLREDUCE, "w" + std::to_string(i % 7), std::vector<float>(100, 1),
                  HVD_FLOAT32);
        work.submission.process_set = 1;
        const Status status = work.run(ranks[rank]);
        if (status.ok()) continue;
        CHECK(status.code() == Code::kAborted);
        CHECK_MESSAGE(status.message().find("rank 2 has ended its program or called shutdown") !=
                          std::string::npos,
                      status.message());
        break;
      }
    });
  }
}

TEST_CASE("a failure while sets come and go ends all work, and each once") {
  for (unsigned round = 0; round < 150; ++round) {
    Ranks ranks(3);
    require_started(ranks);
    ranks.each([&](int rank) {
      for (unsigned i = 0;; ++i) {
        if (rank == 2 && i == round % 10) ranks[rank].fail(hvd::aborted("rank 2 gives up"));
        Status status;
        hvd_handle handle = 0;
        for (const std::vector<int32_t>& set : {std::vector<int32_t>{0, 1}, {1, 2}}) {
          if (status.ok()) status = add(ranks[rank], set);
        }
        for (const int32_t id : {1, 2}) {
          if (status.ok()) status = ranks[rank].remove_process_set(id, &handle);
          if (status.ok() && id == 2) status = finish(ranks[rank], handle);
        }
        if (status.ok()) continue;
        CHECK_MESSAGE(status.code() == Code::kAborted, status.message());
        break;
      }
    });
  }
}

TEST_CASE("a set of others outlives each rank that leaves, whatever its place in the tree") {
  FOR_ALL_LINKS(options);
  constexpr int kSize = 5;
  options.machines = {0, 0, 1, 1, 2};
  for (int leaver = 0; leaver < kSize; ++leaver) {
    CAPTURE(leaver);
    std::vector<int32_t> others;
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank != leaver) others.push_back(rank);
    }
    options.process_sets = {others};
    Ranks ranks(kSize, options);
    require_started(ranks);
    std::atomic<int> working = kSize - 1;
    ranks.each([&](int rank) {
      Runtime& runtime = ranks[rank];
      int32_t dynamic = 0;
      const std::vector<int32_t> pair = {others[1], others[3]};
      CHECK(add(runtime, pair, &dynamic).ok());
      if (rank == leaver) {
        CHECK(runtime.shutdown(Deadline::after_seconds(20)).ok());
        CHECK(working == 0);  // no other rank has lost its links before
        return;
      }
      // An operation of the set of all ranks fails once the rank's departure is known.
      Status refused;
      for (int round = 0; refused.ok(); ++round) {
        Work late(HVD_ALLREDUCE, cat("late ", round), std::vector<float>{1}, HVD_FLOAT32);
        refused = late.submit(runtime);
        if (refused.ok()) refused = late.finish(runtime);
        CHECK(refused.code() == Code::kAborted);
      }
      CHECK(refused.message().find(cat("rank ", leaver, " has ended its program")) !=
            std::string::npos);
      CHECK(add(runtime, {0, 1, 2}).code() == Code::kAborted);
      for (int round = 0; round < 3; ++round) check_all_operations(runtime, 1, others);
      if (rank == pair[0] || rank == pair[1]) check_all_operations(runtime, dynamic, pair);
      --working;
      CHECK(runtime.shutdown(Deadline::after_seconds(20)).ok());
    });
  }
}

TEST_CASE("sets end one by one, each with its first member that leaves") {
  FOR_ALL_LINKS(options);
  options.machines = {0, 0, 1, 1};
  options.process_sets = {{0, 1}, {2, 3}, {1, 2, 3}};
  Ranks ranks(4, options);
  require_started(ranks);
  std::atomic<int> working = 2;
  ranks.each([&](int rank) {
    Runtime& runtime = ranks[rank];
    if (rank == 0) {
      CHECK(runtime.shutdown(Deadline::after_seconds(20)).ok());
      CHECK(working == 0);
    } else if (rank == 1) {
      check_all_operations(runtime, 3, {1, 2, 3});
      Work pending(HVD_ALLREDUCE, "pending", std::vector<float>{1}, HVD_FLOAT32);
      pending.submission.process_set = 1;
      const Status submitted = pending.submit(runtime);
      const Status status = submitted.ok() ? pending.finish(runtime) : submitted;
      CHECK(status.code() == Code::kAborted);
      CHECK(status.message().find("rank 0 has ended") != std::string::npos);
      CHECK(runtime.shutdown(Deadline::after_seconds(20)).ok());
      CHECK(working == 0);
    } else {
      check_all_operations(runtime, 3, {1, 2, 3});
      for (int round = 0; round < 20; ++round) check_all_operations(runtime, 2, {2, 3});
      Work pending(HVD_ALLREDUCE, "pending", std::vector<float>{1}, HVD_FLOAT32);
      pending.submission.process_set = 3;
      const Status submitted = pending.submit(runtime);
      const Status status = submitted.ok() ? pending.finish(runtime) : submitted;
      CHECK(status.code() == Code::kAborted);
      CHECK(status.message().find("rank 1 has ended") != std::string::npos);
      check_all_operations(runtime, 2, {2, 3});
      --working;
      CHECK(runtime.shutdown(Deadline::after_seconds(20)).ok());
    }
  });
}

TEST_CASE("a rank that is lost fails the sets that go on without one that has left") {
  FOR_ALL_LINKS(options);
  options.process_sets = {{1, 2}};
  Ranks ranks(3, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    Runtime& runtime = ranks[rank];
    if (rank == 0) {
      (void)runtime.shutdown(Deadline::after_seconds(20));
    } else if (rank == 1) {
      check_all_operations(runtime, 1, {1, 2});
      runtime.fail(hvd::aborted("rank 1 fails").with_lost_rank(1));
    } else {
      check_all_operations(runtime, 1, {1, 2});
      Work pending(HVD_ALLREDUCE, "pending", std::vector<float>{1}, HVD_FLOAT32);
      pending.submission.process_set = 1;
      const Status submitted = pending.submit(runtime);
      const Status status = submitted.ok() ? pending.finish(runtime) : submitted;
      CHECK(status.message() == "rank 1 fails");
    }
  });
}
