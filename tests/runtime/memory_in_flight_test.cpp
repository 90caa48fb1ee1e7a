// Memory of work in flight: allowed and refused overlaps, and when memory is free again.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "runtime/rank_checks.h"

using hvd::Code;
using hvd::Deadline;
using hvd::Status;
using hvd::test::Ranks;
using hvd::test::require_started;
using hvd::test::sum_of;
using hvd::test::Work;

namespace {

// Two tensors of `count` floats in one buffer, the second `shift` floats after the first.
struct Pair {
  explicit Pair(int op = HVD_ALLREDUCE)
      : first(op, "first", std::vector<float>{}, HVD_FLOAT32, {kCount}),
        second(op, "second", std::vector<float>{}, HVD_FLOAT32, {kCount}) {}
  static constexpr int64_t kCount = 1000;
  void place(Work& work, size_t at, size_t output_at) {
    work.tensor.input = buffer.data() + at;
    work.tensor.output = work.tensor.output == nullptr && work.submission.op != HVD_ALLREDUCE &&
                                 work.submission.op != HVD_BROADCAST
                             ? nullptr
                             : buffer.data() + output_at;
  }
  std::vector<float> buffer = std::vector<float>(8 * kCount, 1);
  Work first, second;
};

void finishes(hvd::runtime::Runtime& runtime, Work& work) {
  const Status status = work.finish(runtime);
  CHECK_MESSAGE(status.ok(), status.message());
}

// Rank 0 submits both, `second` at floats [at, ...) and to [output_at, ...); rank 1 submits them apart. The
// barrier of rank 1 comes last, so that both tensors are in flight on rank 0.
void check_pair(size_t at, size_t output_at, bool refused, const std::string& words = "") {
  CAPTURE(at);
  CAPTURE(output_at);
  Ranks ranks(2);
  require_started(ranks);
  ranks.each([&](int rank) {
    Pair pair;
    pair.place(pair.first, 0, 0);
    if (rank == 0) {
      pair.place(pair.second, at, output_at);
      REQUIRE(pair.first.submit(ranks[rank]).ok());
      const Status status = pair.second.submit(ranks[rank]);
      CHECK(status.ok() == !refused);
      if (refused) {
        CHECK(status.code() == Code::kInvalidArgument);
        CHECK_MESSAGE(status.message().find(words) != std::string::npos, status.message());
        CHECK(status.message().find("allreduce 'first', which is in flight") != std::string::npos);
      }
      Work barrier(HVD_BARRIER, "", std::vector<float>{}, HVD_FLOAT32);
      CHECK(barrier.run(ranks[rank]).ok());
      finishes(ranks[rank], pair.first);
      if (!refused) finishes(ranks[rank], pair.second);
    } else {
      pair.place(pair.second, 2000, 2000);
      Work barrier(HVD_BARRIER, "", std::vector<float>{}, HVD_FLOAT32);
      CHECK(barrier.run(ranks[rank]).ok());
      REQUIRE(pair.first.submit(ranks[rank]).ok());
      REQUIRE(pair.second.submit(ranks[rank]).ok());
      finishes(ranks[rank], pair.first);
      const Status status = pair.second.finish(ranks[rank]);
      CHECK(status.ok() == !refused);
      if (refused) {
        CHECK(status.code() == Code::kInvalidArgument);
        CHECK_MESSAGE(status.message().find("rank 0 refused allreduce 'second': ") == 0,
                      status.message());
        CHECK(status.message().find(words) != std::string::npos);
      }
    }
    CHECK(pair.buffer[0] == 2);
    // The name and the memory are free again.
    pair.place(pair.second, 0, 0);
    REQUIRE(pair.second.submit(ranks[rank]).ok());
    finishes(ranks[rank], pair.second);
    CHECK(pair.buffer[0] == 4);
  });
}

}  // namespace

TEST_CASE("an output that overlaps memory in flight is refused on all ranks, by name") {
  check_pair(0, 0, true, "its output overlaps the output of");
  check_pair(999, 999, true, "its output overlaps the output of");
  check_pair(5000, 999, true, "its output overlaps the output of");
  check_pair(999, 5000, true, "its input overlaps the output of");
}

TEST_CASE("disjoint parts of one buffer are in flight at once") {
  check_pair(1000, 1000, false);
  check_pair(2000, 1000, false);
}

TEST_CASE("inputs may overlap, and an output may not overlap an input") {
  Ranks ranks(2);
  require_started(ranks);
  ranks.each([&](int rank) {
    Pair pair;
    Work third(HVD_ALLREDUCE, "third", std::vector<float>{}, HVD_FLOAT32, {Pair::kCount});
    pair.place(pair.first, 0, 2000);
    pair.place(pair.second, 500, 3000);
    Work gather(HVD_ALLGATHER, "gather", std::vector<float>{}, HVD_FLOAT32, {Pair::kCount});
    gather.tensor.input = pair.buffer.data();
    if (rank == 1)
      CHECK(Work(HVD_BARRIER, "", std::vector<float>{}, HVD_FLOAT32).run(ranks[1]).ok());
    REQUIRE(pair.first.submit(ranks[rank]).ok());
    REQUIRE(pair.second.submit(ranks[rank]).ok());
    REQUIRE(gather.submit(ranks[rank]).ok());
    if (rank == 0) {
      pair.place(third, 5000, 900);
      const Status status = third.submit(ranks[0]);
      CHECK_MESSAGE(status.message().find("its output overlaps the input of") != std::string::npos,
                    status.message());
      CHECK(Work(HVD_BARRIER, "", std::vector<float>{}, HVD_FLOAT32).run(ranks[0]).ok());
    } else {
      pair.place(third, 5000, 6000);
      CHECK(third.run(ranks[1]).code() == Code::kInvalidArgument);
    }
    finishes(ranks[rank], pair.first);
    finishes(ranks[rank], pair.second);
    finishes(ranks[rank], gather);
    CHECK(pair.buffer[2000] == 2);
    CHECK(pair.buffer[3999] == 2);
  });
}

TEST_CASE(
    "a tensor in two process sets is refused in the second, where all its members learn of it") {
  Ranks ranks(3);
  require_started(ranks);
  ranks.each([&](int rank) {
    hvd_handle handle = 0;
    REQUIRE(ranks[rank].add_process_set({0, 1}, &handle).ok());
    REQUIRE(ranks[rank].wait(handle, Deadline::never())->ok());
    hvd_output output{};
    REQUIRE(ranks[rank].output(handle, 0, &output).ok());
    CHECK(ranks[rank].release(handle).ok());
    Pair pair;
    pair.place(pair.first, 0, 0);
    pair.place(pair.second, rank == 0 ? 0 : 4000, rank == 0 ? 0 : 4000);
    pair.second.submission.process_set = output.process_set;
    REQUIRE(pair.first.submit(ranks[rank]).ok() == true);
    if (rank == 0) {
      const Status status = pair.second.submit(ranks[0]);
      if (status.ok()) {  // the other ranks were quick: the first operation is complete
        finishes(ranks[0], pair.second);
      } else {
        CHECK_MESSAGE(status.message().find("of process set 1: its output overlaps the output of "
                                            "allreduce 'first' of all ranks") != std::string::npos,
                      status.message());
      }
    } else if (rank == 1) {
      REQUIRE(pair.second.submit(ranks[1]).ok());
      const Status status = pair.second.finish(ranks[1]);
      if (!status.ok()) CHECK(status.message().find("rank 0 refused") == 0);
    }
    finishes(ranks[rank], pair.first);
  });
}

TEST_CASE("a group whose members overlap is refused whole") {
  Ranks ranks(2);
  require_started(ranks);
  ranks.each([&](int rank) {
    Pair pair;
    pair.place(pair.first, 0, 0);
    hvd_tensor both[2] = {pair.first.tensor, pair.first.tensor};
    const size_t shift = rank == 0 ? 500 : 1000;
    both[1].input = both[1].output = pair.buffer.data() + shift;
    pair.first.submission.tensors = both;
    pair.first.submission.tensor_count = 2;
    const Status status = pair.first.run(ranks[rank]);
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK_MESSAGE(
        status.message().find("the output of its tensor 1 overlaps the output of its tensor 0") !=
            std::string::npos,
        status.message());
    CHECK(pair.buffer[500] == 1);
    both[1].input = both[1].output = pair.buffer.data() + 1000;
    const Status again = pair.first.run(ranks[rank]);
    CHECK_MESSAGE(again.ok(), again.message());
    CHECK(pair.buffer[1999] == 2);
  });
}

TEST_CASE("an input that overlaps its own output in part is refused") {
  Ranks ranks(1);
  require_started(ranks);
  Pair pair;
  pair.place(pair.first, 0, 1);
  const Status status = pair.first.submit(ranks[0]);
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.message().find("its input and its output overlap in part") != std::string::npos);
}

TEST_CASE("the root may broadcast one tensor twice at once, as models with tied weights do") {
  Ranks ranks(2);
  require_started(ranks);
  ranks.each([&](int rank) {
    Pair pair(HVD_BROADCAST);
    pair.place(pair.first, 0, 0);
    pair.place(pair.second, rank == 0 ? 0 : 1000, rank == 0 ? 0 : 1000);
    pair.buffer.assign(pair.buffer.size(), static_cast<float>(rank + 5));
    REQUIRE(pair.first.submit(ranks[rank]).ok());
    REQUIRE(pair.second.submit(ranks[rank]).ok());
    finishes(ranks[rank], pair.first);
    finishes(ranks[rank], pair.second);
    CHECK(pair.buffer[0] == 5);
    CHECK(pair.buffer[rank == 0 ? 0 : 1999] == 5);
  });
}

TEST_CASE("memory is free after work has failed, and empty tensors overlap nothing") {
  Ranks ranks(2);
  require_started(ranks);
  ranks.each([&](int rank) {
    Pair pair;
    pair.place(pair.first, 0, 0);
    pair.first.submission.reduce_op = rank == 0 ? HVD_SUM : HVD_MAX;
    CHECK(pair.first.run(ranks[rank]).code() == Code::kInvalidArgument);
    pair.place(pair.second, 0, 0);
    CHECK(pair.second.run(ranks[rank]).ok());
    pair.first.submission.reduce_op = HVD_SUM;
    pair.second.shape[0] = 0;
    REQUIRE(pair.first.submit(ranks[rank]).ok());
    REQUIRE(pair.second.submit(ranks[rank]).ok());
    finishes(ranks[rank], pair.first);
    finishes(ranks[rank], pair.second);
  });
}

TEST_CASE("a rank that refuses may submit the same name again at once") {
  Ranks ranks(2);
  require_started(ranks);
  ranks.each([&](int rank) {
    Pair pair;
    pair.place(pair.first, 0, 0);
    pair.place(pair.second, rank == 0 ? 10 : 3000, rank == 0 ? 10 : 3000);
    if (rank == 1)
      CHECK(Work(HVD_BARRIER, "", std::vector<float>{}, HVD_FLOAT32).run(ranks[1]).ok());
    REQUIRE(pair.first.submit(ranks[rank]).ok());
    if (rank == 0) {
      CHECK(pair.second.submit(ranks[0]).code() == Code::kInvalidArgument);
      pair.place(pair.second, 3000, 3000);
      REQUIRE(pair.second.submit(ranks[0]).ok());
      CHECK(Work(HVD_BARRIER, "", std::vector<float>{}, HVD_FLOAT32).run(ranks[0]).ok());
    } else {
      CHECK(pair.second.run(ranks[1]).code() == Code::kInvalidArgument);
      REQUIRE(pair.second.submit(ranks[1]).ok());
    }
    finishes(ranks[rank], pair.first);
    finishes(ranks[rank], pair.second);
    CHECK(pair.buffer[3000] == 2);
  });
}

TEST_CASE("an alltoall of more rows than a split holds names tensor and limit on all ranks") {
  Ranks ranks(2);
  require_started(ranks);
  for (const bool even : {false, true}) {
    ranks.each([&](int rank) {
      const int64_t rows = rank == 0 ? 6'000'000'000 : 2;
      Work work(HVD_ALLTOALL, "rows", std::vector<uint8_t>{1}, HVD_UINT8, {rows});
      const int64_t splits[2] = {1, rows - 1};
      if (!even) {
        work.submission.split_count = 2;
        work.submission.wide_splits = splits;
      }
      const Status status = work.run(ranks[rank]);
      CHECK(status.code() == Code::kInvalidArgument);
      CHECK_MESSAGE(status.message().find("alltoall 'rows': ") != std::string::npos,
                    status.message());
      CHECK(status.message().find("limit of 2147483647") != std::string::npos);
      CHECK((rank == 0) == (status.message().find("rank 0 refused") == std::string::npos));
    });
  }
}

TEST_CASE(
    "a reducescatter writes its rows into memory of the caller, which must be apart from its "
    "input") {
  FOR_ALL_LINKS(options);
  Ranks ranks(3, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    for (const int64_t rows : {5, 6, 2}) {
      const int64_t first = rows / 3 * rank + std::min<int64_t>(rank, rows % 3);
      const int64_t own = rows / 3 + (rank < rows % 3 ? 1 : 0);
      std::vector<float> values(static_cast<size_t>(rows * 2));
      std::iota(values.begin(), values.end(), static_cast<float>(rank));
      Work work(HVD_REDUCESCATTER, "rows", values, HVD_FLOAT32, {rows, 2});
      std::vector<float> result(static_cast<size_t>(own * 2) + 1, -1);
      work.tensor.output = result.data();
      REQUIRE(work.submit(ranks[rank]).ok());
      // The element after its rows is free.
      Work next = sum_of("next", {1});
      next.tensor.output = result.data() + own * 2;
      CHECK(next.run(ranks[rank]).ok());
      const auto status = ranks[rank].wait(work.handle, Deadline::after_seconds(200));
      REQUIRE(status.has_value());
      CHECK_MESSAGE(status->ok(), status->message());
      for (int64_t i = 0; i < own * 2; ++i) {
        CHECK(result[static_cast<size_t>(i)] == static_cast<float>(3 * (first * 2 + i) + 3));
      }
      CHECK(result.back() == 3);
      hvd_output output{};
      output.struct_size = sizeof output;
      REQUIRE(ranks[rank].output(work.handle, 0, &output).ok());
      CHECK(output.data == result.data());
      CHECK(output.shape[0] == own);
      CHECK(ranks[rank].release(work.handle).ok());
    }
    Work work(HVD_REDUCESCATTER, "torn", std::vector<float>(6, 1), HVD_FLOAT32);
    work.tensor.output = work.input.data();
    const Status status = work.submit(ranks[rank]);
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message() ==
          "reducescatter 'torn': its input and its output overlap; give separate memory to each");
  });
}
