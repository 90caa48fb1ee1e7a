// Ranks of one process, over the test's memory links and over the built-in links.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "runtime/rank_checks.h"

using hvd::Code;
using hvd::Deadline;
using hvd::Status;
using hvd::test::Links;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::require_started;
using hvd::test::sum_of;
using hvd::test::Work;

namespace {

float triangle(int n) { return static_cast<float>(n * (n + 1)) / 2; }

}  // namespace

TEST_CASE("two runtimes in one process allreduce with each other") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    Work work = sum_of("x", {1.0f + static_cast<float>(rank), 10});
    const Status status = work.run(ranks[rank]);
    CHECK_MESSAGE(status.ok(), status.message());
    CHECK(work.result<float>() == std::vector<float>{3, 20});
  });
}

TEST_CASE("every operation works on 1 to 5 ranks, again and again under the same names") {
  FOR_ALL_LINKS(options);
  for (int size = 1; size <= 5; ++size) {
    CAPTURE(size);
    Ranks ranks(size, options);
    require_started(ranks);
    ranks.each([&](int rank) {
      for (int step = 0; step < 5; ++step) {
        Work sum = sum_of("sum", {static_cast<float>(rank + 1)});
        Status status = sum.run(ranks[rank]);
        CHECK_MESSAGE(status.ok(), status.message());
        CHECK(sum.result<float>()[0] == triangle(size));

        Work root(HVD_BROADCAST, "root", std::vector<int32_t>{rank, step}, HVD_INT32);
        root.submission.root_rank = size - 1;
        status = root.run(ranks[rank]);
        CHECK_MESSAGE(status.ok(), status.message());
        CHECK(root.result<int32_t>() == std::vector<int32_t>{size - 1, step});

        Work gather(HVD_ALLGATHER, "gather",
                    std::vector<int64_t>(static_cast<size_t>(rank + step), rank), HVD_INT64);
        REQUIRE(gather.submit(ranks[rank]).ok());
        status = *ranks[rank].wait(gather.handle, Deadline::never());
        CHECK_MESSAGE(status.ok(), status.message());
        hvd_output output{};
        output.struct_size = sizeof output;
        REQUIRE(ranks[rank].output(gather.handle, 0, &output).ok());
        std::vector<int64_t> expected;
        for (int other = 0; other < size; ++other) {
          expected.insert(expected.end(), static_cast<size_t>(other + step), other);
        }
        REQUIRE(output.ndim == 1);
        REQUIRE(output.shape[0] == static_cast<int64_t>(expected.size()));
        const auto* data = static_cast<const int64_t*>(output.data);
        CHECK(std::equal(expected.begin(), expected.end(), data));
        CHECK(ranks[rank].release(gather.handle).ok());

        Work barrier(HVD_BARRIER, "", std::vector<float>{}, HVD_FLOAT32);
        status = barrier.run(ranks[rank]);
        CHECK_MESSAGE(status.ok(), status.message());
      }
    });
  }
}

TEST_CASE("averages divide, integers toward zero; minimum, maximum and product reduce") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    const auto reduce = [&](int32_t op, int32_t dtype, auto a, auto b) {
      Work work(HVD_ALLREDUCE, "w", std::vector{rank == 0 ? a : b}, dtype);
      work.submission.reduce_op = op;
      const Status status = work.run(ranks[rank]);
      CHECK_MESSAGE(status.ok(), status.message());
      return work.result<decltype(a)>()[0];
    };
    CHECK(reduce(HVD_AVERAGE, HVD_INT32, int32_t{-3}, int32_t{-6}) == -4);
    CHECK(reduce(HVD_AVERAGE, HVD_INT32, int32_t{3}, int32_t{6}) == 4);
    CHECK(reduce(HVD_AVERAGE, HVD_FLOAT64, 1.0, 2.0) == 1.5);
    CHECK(reduce(HVD_MIN, HVD_FLOAT32, 3.0f, -1.0f) == -1.0f);
    CHECK(reduce(HVD_MAX, HVD_INT64, int64_t{3}, int64_t{-1}) == 3);
    CHECK(reduce(HVD_PRODUCT, HVD_FLOAT32, 3.0f, -2.0f) == -6.0f);
  });
}

TEST_CASE("an average of integers does not wrap around, in an allreduce and a reducescatter") {
  FOR_ALL_LINKS(options);
  Ranks ranks(4, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    const auto check = [&](int32_t dtype, auto value, double postscale, auto right) {
      Work work(HVD_ALLREDUCE, "average", std::vector(300, value), dtype);
      work.submission.reduce_op = HVD_AVERAGE;
      work.submission.postscale = postscale;
      const Status status = work.run(ranks[rank]);
      CHECK_MESSAGE(status.ok(), status.message());
      CHECK(work.result<decltype(value)>() ==
            std::vector(300, static_cast<decltype(value)>(right)));
    };
    check(HVD_UINT8, uint8_t{100}, 1, 100);
    check(HVD_UINT8, uint8_t{255}, 1, 255);
    check(HVD_INT8, int8_t{-128}, 1, -128);
    check(HVD_INT16, int16_t{32767}, 1, 32767);
    check(HVD_UINT16, uint16_t{65535}, 1, 65535);
    check(HVD_INT32, int32_t{-2147483647}, 1, -2147483647);
    check(HVD_UINT32, uint32_t{4294967295u}, 1, 4294967295u);
    check(HVD_INT64, int64_t{1} << 60, 1, int64_t{1} << 60);
    check(HVD_UINT8, uint8_t{100}, 4, 255);  // clamped to the nearest number
    // Ranks get rows 0 and 1, 2, 3, 4.
    Work rows(HVD_REDUCESCATTER, "rows", std::vector<uint8_t>(5, 200), HVD_UINT8);
    rows.submission.reduce_op = HVD_AVERAGE;
    REQUIRE(rows.submit(ranks[rank]).ok());
    const Status status = *ranks[rank].wait(rows.handle, Deadline::never());
    CHECK_MESSAGE(status.ok(), status.message());
    hvd_output output{};
    output.struct_size = sizeof output;
    REQUIRE(ranks[rank].output(rows.handle, 0, &output).ok());
    REQUIRE(output.shape[0] == (rank == 0 ? 2 : 1));
    const auto* data = static_cast<const uint8_t*>(output.data);
    CHECK(std::all_of(data, data + output.shape[0], [](uint8_t one) { return one == 200; }));
    CHECK(ranks[rank].release(rows.handle).ok());
  });
}

TEST_CASE("a factor that is no finite number is refused on every rank, by one sentence") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    const auto refusal = [&](double prescale, double postscale) {
      Work work = sum_of("w", {1.0f});
      work.submission.prescale = prescale;
      work.submission.postscale = postscale;
      return work.run(ranks[rank]).message();
    };
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(refusal(nan, 1) ==
          "allreduce 'w': its prescale factor is nan on rank 0; a factor must be a finite number");
    CHECK(refusal(1, rank == 1 ? std::numeric_limits<double>::infinity() : 1) ==
          "allreduce 'w': its postscale factor is inf on rank 1; a factor must be a finite number");
    CHECK(refusal(1, 1) == "");
  });
}

TEST_CASE("names that the ranks submit in different orders complete") {
  FOR_ALL_LINKS(options);
  constexpr int kNames = 60;
  Ranks ranks(4, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    std::mt19937 random(static_cast<unsigned>(rank) + 7);
    for (int step = 0; step < 4; ++step) {
      std::vector<int> order(kNames);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      std::deque<Work> works;
      for (const int i : order) {
        works.emplace_back(HVD_ALLREDUCE, "n" + std::to_string(i),
                           std::vector<float>(static_cast<size_t>(i) + 1, static_cast<float>(i)),
                           HVD_FLOAT32);
        REQUIRE(works.back().submit(ranks[rank]).ok());
      }
      for (Work& work : works) {
        const Status status = work.finish(ranks[rank]);
        CHECK_MESSAGE(status.ok(), status.message());
        const auto result = work.result<float>();
        CHECK(result.back() == 4 * (static_cast<float>(result.size()) - 1));
      }
    }
  });
  const auto counts = ranks[0].counts();
  CHECK(counts.batches < 4 * kNames);  // some tensors were fused
}

TEST_CASE("many small tensors of one step become few batches, and repeat by their ids") {
  Ranks ranks(2);
  require_started(ranks);
  constexpr int kSteps = 6;
  ranks.each([&](int rank) {
    for (int step = 0; step < kSteps; ++step) {
      std::deque<Work> works;
      for (int i = 0; i < 50; ++i) {
        works.emplace_back(HVD_ALLREDUCE, "t" + std::to_string(i), std::vector<float>(16, 1),
                           HVD_FLOAT32);
        REQUIRE(works.back().submit(ranks[rank]).ok());
      }
      for (Work& work : works) CHECK(work.finish(ranks[rank]).ok());
    }
  });
  const auto counts = ranks[1].counts();
  CHECK(counts.batches < kSteps * 25);
  CHECK(counts.fused_tensors > kSteps * 25);
  // The second agreement assigns an id.
  CHECK(counts.short_announcements == (kSteps - 2) * 50);
}

TEST_CASE("a threshold of 0 packs nothing") {
  RanksOptions options;
  REQUIRE(options.settings.set("fusion_threshold", "0").ok());
  Ranks ranks(2, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    std::deque<Work> works;
    for (int i = 0; i < 10; ++i) {
      works.emplace_back(HVD_ALLREDUCE, "t" + std::to_string(i), std::vector<float>(4, 1),
                         HVD_FLOAT32);
      REQUIRE(works.back().submit(ranks[rank]).ok());
    }
    for (Work& work : works) CHECK(work.finish(ranks[rank]).ok());
  });
  CHECK(ranks[0].counts().fused_tensors == 0);
}

TEST_CASE("empty and scalar tensors are fine, but a scalar where rows count") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    Work empty(HVD_ALLREDUCE, "empty", std::vector<float>{}, HVD_FLOAT32);
    CHECK(empty.run(ranks[rank]).ok());
    Work gather(HVD_ALLGATHER, "none", std::vector<float>{}, HVD_FLOAT32);
    CHECK(gather.run(ranks[rank]).ok());
    Work scalar = sum_of("scalar", {2});
    scalar.tensor.ndim = 0;
    CHECK(scalar.run(ranks[rank]).ok());
    CHECK(scalar.result<float>()[0] == 4);
    for (const int32_t op : {HVD_ALLGATHER, HVD_ALLTOALL, HVD_REDUCESCATTER}) {
      Work rows(op, "rows", std::vector<float>{1, 2}, HVD_FLOAT32);
      if (rank == 1 || op == HVD_REDUCESCATTER) rows.tensor.ndim = 0;
      const Status status = rows.run(ranks[rank]);
      CHECK(status.code() == Code::kInvalidArgument);
      CHECK_MESSAGE(status.message().find("a rank-zero tensor on rank") != std::string::npos,
                    status.message());
    }
  });
}

TEST_CASE("ranks that disagree all read the same sentence, and go on") {
  FOR_ALL_LINKS(options);
  Ranks ranks(3, options);
  require_started(ranks);
  struct Case {
    const char* what;
    std::function<void(int rank, Work& work)> change;
    std::vector<std::string> fragments;
  };
  const std::vector<Case> cases = {
      {"dtype",
       [](int rank, Work& w) {
         if (rank == 2) w.tensor.dtype = HVD_INT32;
       },
       {"Mismatched data types", "float32 on rank 0", "int32 on rank 2"}},
      {"operation",
       [](int rank, Work& w) {
         if (rank == 1) w.submission.op = HVD_BROADCAST;
       },
       {"Mismatched operations", "ALLREDUCE on rank 0", "BROADCAST on rank 1"}},
      {"shape",
       [](int rank, Work& w) {
         if (rank == 2) w.shape[0] = 1;
       },
       {"Mismatched ALLREDUCE tensor shapes", "[2] on rank 0", "[1] on rank 2"}},
      {"scale",
       [](int rank, Work& w) {
         if (rank == 0) w.submission.prescale = 0.5;
       },
       {"prescale and/or postscale", "rank 0", "rank 1"}},
      {"reduction",
       [](int rank, Work& w) {
         if (rank == 1) w.submission.reduce_op = HVD_MAX;
       },
       {"Mismatched reduction operation", "sum on rank 0", "max on rank 1"}},
      {"root",
       [](int rank, Work& w) {
         w.submission.op = HVD_BROADCAST;
         w.submission.root_rank = rank == 1 ? 2 : 0;
       },
       {"Mismatched BROADCAST root ranks", "0 on rank 0", "2 on rank 1"}},
  };
  for (int round = 0; round < 2; ++round) {
    for (const Case& one : cases) {
      CAPTURE(one.what);
      std::vector<Status> statuses(3);
      ranks.each([&](int rank) {
        // The same name, also after it was negotiated and cached.
        Work work = sum_of("w", {1, 2});
        one.change(rank, work);
        statuses[static_cast<size_t>(rank)] = work.run(ranks[rank]);
        Work good = sum_of("w", {1, 2});
        const Status status = good.run(ranks[rank]);
        CHECK_MESSAGE(status.ok(), status.message());
        CHECK(good.result<float>()[1] == 6);
      });
      CHECK(statuses[0].code() == Code::kInvalidArgument);
      CHECK(statuses[0].message() == statuses[1].message());
      CHECK(statuses[0].message() == statuses[2].message());
      for (const std::string& fragment : one.fragments) {
        INFO(statuses[0].message());
        CHECK(statuses[0].message().find(fragment) != std::string::npos);
      }
    }
  }
}

TEST_CASE("an operation that no plugin can run fails on all ranks alike, and they go on") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    // Bool has no product with a factor; the memory op does not support bool.
    Work work(HVD_ALLREDUCE, "b", std::vector<uint8_t>{1, 0}, HVD_BOOL);
    work.submission.prescale = 0.25;
    const Status status = work.run(ranks[rank]);
    if (options.links == Links::kMemory) {
      CHECK(status.code() == Code::kUnimplemented);
      CHECK(status.message().find("bool") != std::string::npos);
    }
    CHECK(sum_of("next", {1}).run(ranks[rank]).ok());
  });
}

TEST_CASE("a name in flight is refused, and the first is unharmed") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    Work first = sum_of("twice", {static_cast<float>(rank)});
    REQUIRE(first.submit(ranks[rank]).ok());
    Work second = sum_of("twice", {7});
    const Status status = second.submit(ranks[rank]);
    // The other rank may have finished; then the name is free again.
    if (!status.ok()) {
      CHECK(status.code() == Code::kAlreadyExists);
      CHECK(status.message().find("same name as another tensor") != std::string::npos);
    }
    CHECK(first.finish(ranks[rank]).ok());
    CHECK(first.result<float>()[0] == 1);
    if (status.ok()) CHECK(second.finish(ranks[rank]).ok());
  });
}

TEST_CASE("barriers of several threads of a rank pair up") {
  Ranks ranks(2);
  require_started(ranks);
  ranks.each([&](int rank) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, rank] {
        for (int n = 0; n < 20; ++n) {
          Work barrier(HVD_BARRIER, "", std::vector<float>{}, HVD_FLOAT32);
          CHECK(barrier.run(ranks[rank]).ok());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_CASE("two threads of a rank submit and wait at once") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i, rank] {
        for (int n = 0; n < 100; ++n) {
          Work work = sum_of("thread" + std::to_string(i), {static_cast<float>(n)});
          CHECK(work.run(ranks[rank]).ok());
          CHECK(work.result<float>()[0] == 2 * static_cast<float>(n));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_CASE("asynchronous work completes while nobody waits") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    Work work = sum_of("async", {1});
    REQUIRE(work.submit(ranks[rank]).ok());
    bool done = false;
    const Deadline deadline = Deadline::after_seconds(200);
    while (!done && !deadline.passed()) {
      REQUIRE(ranks[rank].poll(work.handle, &done).ok());
      std::this_thread::yield();
    }
    CHECK(done);
    CHECK(work.finish(ranks[rank]).ok());
  });
}

TEST_CASE("a wait ends when its time has passed, and may be taken up again") {
  FOR_ALL_LINKS(options);
  Ranks ranks(2, options);
  require_started(ranks);
  Work early = sum_of("late", {1});
  REQUIRE(early.submit(ranks[0]).ok());
  CHECK(!ranks[0].wait(early.handle, Deadline::after_seconds(0.05)));
  CHECK(!ranks[0].wait(early.handle, Deadline::after_seconds(0)));
  Work late = sum_of("late", {2});
  REQUIRE(late.submit(ranks[1]).ok());
  CHECK(early.finish(ranks[0]).ok());
  CHECK(late.finish(ranks[1]).ok());
  CHECK(early.result<float>()[0] == 3);
}

TEST_CASE("alltoall and reducescatter") {
  Ranks ranks(2);
  require_started(ranks);
  ranks.each([&](int rank) {
    Work all(
        HVD_ALLTOALL, "all",
        std::vector<float>{10.0f * static_cast<float>(rank), 10.0f * static_cast<float>(rank) + 1},
        HVD_FLOAT32);
    REQUIRE(all.submit(ranks[rank]).ok());
    Status status = *ranks[rank].wait(all.handle, Deadline::never());
    CHECK_MESSAGE(status.ok(), status.message());
    hvd_output output{};
    output.struct_size = sizeof output;
    REQUIRE(ranks[rank].output(all.handle, 0, &output).ok());
    CHECK(output.shape[0] == 2);
    CHECK(output.received_split_count == 2);
    CHECK(static_cast<const float*>(output.data)[1] == 10.0f + static_cast<float>(rank));
    CHECK(ranks[rank].release(all.handle).ok());

    Work scatter(HVD_REDUCESCATTER, "scatter", std::vector<float>{1, 2, 3}, HVD_FLOAT32);
    REQUIRE(scatter.submit(ranks[rank]).ok());
    status = *ranks[rank].wait(scatter.handle, Deadline::never());
    CHECK_MESSAGE(status.ok(), status.message());
    REQUIRE(ranks[rank].output(scatter.handle, 0, &output).ok());
    CHECK(output.shape[0] == (rank == 0 ? 2 : 1));
    CHECK(static_cast<const float*>(output.data)[0] == (rank == 0 ? 2 : 6));
    CHECK(ranks[rank].release(scatter.handle).ok());
  });
}

TEST_CASE("ranks on several machines agree through their leaders") {
  RanksOptions options;
  options.machines = {0, 1, 0, 2, 1, 3, 3, 4, 0};
  Ranks ranks(9, options);
  require_started(ranks);
  CHECK(ranks[2].identity().local_rank == 1);
  CHECK(ranks[2].identity().local_size == 3);
  CHECK(ranks[4].identity().cross_rank == 1);
  CHECK(ranks[4].identity().cross_size == 3);
  CHECK(!ranks[4].identity().is_homogeneous);
  ranks.each([&](int rank) {
    for (int step = 0; step < 4; ++step) {
      Work work = sum_of("tree", {static_cast<float>(rank)});
      const Status status = work.run(ranks[rank]);
      CHECK_MESSAGE(status.ok(), status.message());
      CHECK(work.result<float>()[0] == 36);
    }
  });
}
