// Collectives of groups, between the ranks of one process, over each kind of link.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>

#include "base/text.h"
#include "runtime/link_store.h"
#include "runtime/rank_checks.h"
#include "runtime/trace_reader.h"

using hvd::cat;
using hvd::Code;
using hvd::Deadline;
using hvd::Status;
using hvd::runtime::Runtime;
using hvd::test::Links;
using hvd::test::machine_each;
using hvd::test::over_relay;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::Relay;
using hvd::test::require_started;
using hvd::test::sum_of;
using hvd::test::Work;

namespace {

using Numbers = std::vector<double>;

// One call of a group with its float64 buffers.
struct Call {
  Call(int32_t group, int32_t op, Numbers values, size_t outputs, int64_t count)
      : input(std::move(values)), output(outputs, -1) {
    call.struct_size = sizeof call;
    call.group = group;
    call.op = op;
    call.reduce_op = HVD_SUM;
    call.dtype = HVD_FLOAT64;
    call.count = count;
    call.input = input.data();
    call.output = output.data();
  }
  Call(Call&&) = delete;

  Status submit(Runtime& runtime) { return runtime.submit_group_call(call, &handle); }
  Status finish(Runtime& runtime) {
    const std::optional<Status> status = runtime.wait(handle, Deadline::after_seconds(200));
    if (!status) return hvd::deadline_exceeded("a call is not complete after 60 s");
    const Status released = runtime.release(handle);
    return status->ok() ? released : *status;
  }
  Status run(Runtime& runtime) {
    const Status status = submit(runtime);
    return status.ok() ? finish(runtime) : status;
  }

  Numbers input, output;
  hvd_group_call call{};
  hvd_handle handle = 0;
};

struct Sum : Call {
  Sum(int32_t group, Numbers values)
      : Call(group, HVD_ALLREDUCE, values, values.size(), static_cast<int64_t>(values.size())) {}
};

void check_ok(const Status& status) { CHECK_MESSAGE(status.ok(), status.message()); }
void check_has(const Status& status, Code code, const std::string& text) {
  CHECK(status.code() == code);
  CHECK_MESSAGE(status.message().find(text) != std::string::npos, status.message());
}

// Ranks that share one host, or have a host each.
class World {
 public:
  World(int size, bool has_hosts) {
    RanksOptions options;
    options.links = Links::kBuiltin;
    if (has_hosts) options = over_relay(relay_, machine_each(size));
    options.has_heaps = true;
    ranks_.emplace(size, options);
    require_started(*ranks_);
  }
  ~World() {
    ranks_.reset();
    relay_.abandon();
  }
  Ranks& ranks() { return *ranks_; }
  Runtime& operator[](int rank) { return (*ranks_)[rank]; }
  int32_t group(int rank, std::vector<int32_t> members, const char* name = "g") {
    int32_t id = 0;
    check_ok((*ranks_)[rank].create_group(std::move(members), name, &id));
    return id;
  }

 private:
  Relay relay_;
  std::optional<Ranks> ranks_;
};

Numbers counted(size_t count, int rank) {
  Numbers values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<double>(i) + 1000 * rank;
  return values;
}

}  // namespace

#define FOR_BOTH_PLACES(has_hosts)             \
  if (!hvd::test::has_builtin_links()) return; \
  bool has_hosts = false;                      \
  SUBCASE("on one host") {}                    \
  SUBCASE("on several hosts") { has_hosts = true; }

TEST_CASE("every collective of a group computes what its definition says") {
  FOR_BOTH_PLACES(has_hosts);
  World world(3, has_hosts);
  world.ranks().each([&](int rank) {
    const int32_t group = world.group(rank, {0, 1, 2});
    for (const size_t count : {size_t{1}, size_t{700}, size_t{40000}}) {
      const Numbers own = counted(count, rank);
      Sum sum(group, own);
      check_ok(sum.run(world[rank]));
      for (size_t i = 0; i < count; ++i)
        REQUIRE(sum.output[i] == 3 * static_cast<double>(i) + 3000);
      Sum average(group, own);
      average.call.reduce_op = HVD_AVERAGE;
      average.call.output = average.input.data();
      check_ok(average.run(world[rank]));
      CHECK(average.input == counted(count, 1));
      Call gathered(group, HVD_ALLGATHER, own, 3 * count, static_cast<int64_t>(count));
      check_ok(gathered.run(world[rank]));
      Call sent(group, HVD_BROADCAST, own, count, static_cast<int64_t>(count));
      sent.call.root_rank = 2;
      check_ok(sent.run(world[rank]));
      CHECK(sent.output == counted(count, 2));
      Call scattered(group, HVD_REDUCESCATTER, counted(3 * count, rank), count,
                     static_cast<int64_t>(count));
      check_ok(scattered.run(world[rank]));
      const int64_t to_each[] = {1, 2, 3};
      const int64_t from_each[] = {rank + 1, rank + 1, rank + 1};
      Call exchanged(group, HVD_ALLTOALL, counted(6, rank), 3 * (static_cast<size_t>(rank) + 1), 0);
      exchanged.call.send_counts = to_each;
      exchanged.call.recv_counts = from_each;
      check_ok(exchanged.run(world[rank]));
      for (size_t from = 0; from < 3; ++from) {
        const Numbers theirs = counted(3 * count, static_cast<int>(from));
        for (size_t i = 0; i < count; ++i) {
          REQUIRE(gathered.output[from * count + i] == theirs[i]);
        }
        const size_t begin = static_cast<size_t>(rank * (rank + 1) / 2);
        for (size_t i = 0; i <= static_cast<size_t>(rank); ++i) {
          REQUIRE(exchanged.output[from * (static_cast<size_t>(rank) + 1) + i] ==
                  counted(6, static_cast<int>(from))[begin + i]);
        }
      }
      for (size_t i = 0; i < count; ++i) {
        const auto at = static_cast<double>(static_cast<size_t>(rank) * count + i);
        REQUIRE(scattered.output[i] == 3 * at + 3000);
      }
      Call reduced(group, HVD_GROUP_REDUCE, own, rank == 1 ? count : 0,
                   static_cast<int64_t>(count));
      reduced.call.root_rank = 1;
      if (rank != 1) reduced.call.output = nullptr;
      check_ok(reduced.run(world[rank]));
      if (rank == 1) CHECK(reduced.output == sum.output);
      Call collected(group, HVD_GROUP_GATHER, own, rank == 2 ? 3 * count : 0,
                     static_cast<int64_t>(count));
      collected.call.root_rank = 2;
      check_ok(collected.run(world[rank]));
      if (rank == 2) CHECK(collected.output == gathered.output);
      Call handed(group, HVD_GROUP_SCATTER, rank == 2 ? gathered.output : Numbers(), count,
                  static_cast<int64_t>(count));
      handed.call.root_rank = 2;
      check_ok(handed.run(world[rank]));
      CHECK(handed.output == own);
      Call barrier(group, HVD_BARRIER, {}, 0, 0);
      check_ok(barrier.run(world[rank]));
    }
    check_ok(world[rank].destroy_group(group));
    check_has(Sum(group, {1}).run(world[rank]), Code::kNotFound, "does not exist");
  });
}

TEST_CASE_TEMPLATE("an average of integers is cut towards zero and does not wrap around", Integer,
                   uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t) {
  FOR_BOTH_PLACES(has_hosts);
  using Limits = std::numeric_limits<Integer>;
  constexpr int32_t kUnsigned[] = {HVD_UINT8, HVD_UINT16, HVD_UINT32, HVD_UINT64};
  constexpr int32_t kSigned[] = {HVD_INT8, HVD_INT16, HVD_INT32, HVD_INT64};
  const int32_t dtype =
      (Limits::is_signed ? kSigned : kUnsigned)[std::countr_zero(sizeof(Integer))];
  // Sums of 64-bit integers wrap around, so use smaller inputs.
  const Integer large = sizeof(Integer) < 8 ? Limits::max() : Limits::max() / 3;
  const std::vector<std::vector<Integer>> inputs{
      {large, 0, 5, static_cast<Integer>(-7), 1, 2},
      {large, 1, 0, static_cast<Integer>(Limits::is_signed ? 0 : -7), 1, 2},
      {large, 1, 0, static_cast<Integer>(Limits::is_signed ? -1 : -7), 1, 4}};
  const std::vector<Integer> average{large, 0, 1, static_cast<Integer>(Limits::is_signed ? -2 : -7),
                                     1,     2};
  World world(3, has_hosts);
  world.ranks().each([&](int rank) {
    const int32_t group = world.group(rank, {0, 1, 2});
    const auto run = [&](int32_t op, int64_t count, const Integer* input, Integer* output) {
      Call call(group, op, {}, 0, count);
      call.call.reduce_op = HVD_AVERAGE;
      call.call.dtype = dtype;
      call.call.root_rank = 1;
      call.call.input = input;
      call.call.output = output;
      check_ok(call.run(world[rank]));
    };
    std::vector<Integer> values = inputs[static_cast<size_t>(rank)], reduced(6), part(2);
    run(HVD_GROUP_REDUCE, 6, values.data(), rank == 1 ? reduced.data() : nullptr);
    run(HVD_REDUCESCATTER, 2, values.data(), part.data());
    run(HVD_ALLREDUCE, 6, values.data(), values.data());
    for (size_t i = 0; i < 6; ++i) {
      if (i == 3 && !Limits::is_signed && sizeof(Integer) == 8) continue;
      CHECK(values[i] == average[i]);
      if (rank == 1) CHECK(reduced[i] == average[i]);
      if (i / 2 == static_cast<size_t>(rank)) CHECK(part[i % 2] == average[i]);
    }
  });
}

TEST_CASE("a gather and a reduce work in place, and memory that overlaps otherwise is refused") {
  FOR_BOTH_PLACES(has_hosts);
  World world(2, has_hosts);
  world.ranks().each([&](int rank) {
    const int32_t group = world.group(rank, {0, 1});
    Call gathered(group, HVD_ALLGATHER, {}, 200, 100);
    const Numbers own = counted(100, rank);
    double* const part = gathered.output.data() + 100 * rank;
    std::copy(own.begin(), own.end(), part);
    gathered.call.input = part;
    check_ok(gathered.run(world[rank]));
    Numbers both = counted(100, 0);
    const Numbers second = counted(100, 1);
    both.insert(both.end(), second.begin(), second.end());
    CHECK(gathered.output == both);
    gathered.call.input = gathered.output.data() + 100 * (1 - rank);
    check_has(gathered.run(world[rank]), Code::kInvalidArgument, "its input and output overlap");
    const bool is_root = rank == 1;
    Call collected(group, HVD_GROUP_GATHER, own, is_root ? 200 : 0, 100);
    collected.call.root_rank = 1;
    if (is_root) {
      std::copy(own.begin(), own.end(), collected.output.begin() + 100);
      collected.call.input = collected.output.data() + 100;
    }
    check_ok(collected.run(world[rank]));
    if (is_root) CHECK(collected.output == both);
    Call reduced(group, HVD_GROUP_REDUCE, own, 0, 100);
    if (rank == 0) reduced.call.output = reduced.input.data();
    check_ok(reduced.run(world[rank]));
    if (rank == 0) CHECK(reduced.input[1] == 1002);
    Sum shifted(group, {1, 2, 3});
    shifted.call.input = shifted.output.data() + 1;
    shifted.call.count = 2;
    check_has(shifted.run(world[rank]), Code::kInvalidArgument, "its input and output overlap");
    Sum again(group, {1, 2, 3});
    check_ok(again.run(world[rank]));
    CHECK(again.output == Numbers{2, 4, 6});
  });
}

TEST_CASE("a timeline has the calls of a group with their numbers, also those that fail") {
  FOR_BOTH_PLACES(has_hosts);
  World world(2, has_hosts);
  const std::string path =
      std::filesystem::temp_directory_path() / hvd::cat("hvd-groups-", ::getpid());
  REQUIRE(world[0].observation().start_timeline(path, false).ok());
  world.ranks().each([&](int rank) {
    Work both_record = sum_of("both record");
    check_ok(both_record.run(world[rank]));
    const int32_t group = world.group(rank, {0, 1}, "workers");
    for (int i = 0; i < 2; ++i) check_ok(Sum(group, {1, 2}).run(world[rank]));
    Call differs(group, HVD_BROADCAST, {5}, 1, 1);
    differs.call.root_rank = rank;
    check_has(differs.run(world[rank]), Code::kInvalidArgument, "from rank 1");
    Call collected(group, HVD_GROUP_GATHER, {1}, 2, 1);
    check_ok(collected.run(world[rank]));
    Call barrier(group, HVD_BARRIER, {}, 0, 0);
    check_ok(barrier.run(world[rank]));
  });
  REQUIRE(world[0].observation().stop_timeline().ok());
  const hvd::test::Trace trace = hvd::test::read_trace(path);
  std::filesystem::remove(path);
  using Words = std::vector<std::string>;
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(trace.of("group workers", rank) ==
          Words{"B ALLREDUCE", "E float64 [2] call 1", "B ALLREDUCE", "E float64 [2] call 2",
                "B BROADCAST", "E float64 [1] call 3", "B GATHER", "E float64 [1] call 4",
                "B BARRIER", "E call 5"});
  }
}

TEST_CASE("calls that differ fail on all members with both calls, and the next call is in step") {
  FOR_BOTH_PLACES(has_hosts);
  World world(3, has_hosts);
  world.ranks().each([&](int rank) {
    const int32_t group = world.group(rank, {0, 1, 2}, "workers");
    check_ok(Sum(group, {1}).run(world[rank]));
    Sum sum(group, {1, 2});
    Call other(group, HVD_BROADCAST, {1, 2, 3}, 3, 3);
    other.call.root_rank = 1;
    Call& one = rank == 2 ? other : sum;
    check_has(
        one.run(world[rank]), Code::kInvalidArgument,
        "group workers, call 2: rank 0 calls allreduce of 2 elements of float64 (sum), and rank 2 "
        "calls broadcast of 3 elements of float64 from rank 1");
    CHECK(one.output == Numbers(one.output.size(), -1));
    Sum kind(group, {5});
    if (rank == 1) kind.call.reduce_op = HVD_MAX;
    check_has(
        kind.run(world[rank]), Code::kInvalidArgument,
        "call 3: rank 0 calls allreduce of 1 element of float64 (sum), and rank 1 calls allreduce "
        "of 1 element of float64 (max)");
    Call root(group, HVD_GROUP_REDUCE, {5}, 1, 1);
    root.call.root_rank = rank == 0 ? 0 : 1;
    check_has(root.run(world[rank]), Code::kInvalidArgument,
              "call 4: rank 0 calls reduce of 1 element of float64 (sum) to rank 0, and rank 1 "
              "calls reduce of 1 element of float64 (sum) to rank 1");
    CHECK(root.output == Numbers{-1});
    Call tagged(group, HVD_ALLGATHER, {5}, 3, 1);
    if (rank == 2) tagged.call.tag = 7;
    check_has(tagged.run(world[rank]), Code::kInvalidArgument,
              "allgather of 1 element of float64, and rank 2 calls allgather of 1 element of "
              "float64 with tag 7");
    Sum marked(group, {5});
    marked.call.tag = rank;
    check_has(marked.run(world[rank]), Code::kInvalidArgument,
              "rank 1 calls allreduce of 1 element of float64 (sum) with tag 1");
    const int64_t to_each[] = {1, 1, 1};
    const int64_t from_each[] = {1, 1, rank == 0 ? 2 : 1};
    Call exchanged(group, HVD_ALLTOALL, {1, 2, 3}, 4, 0);
    exchanged.call.send_counts = to_each;
    exchanged.call.recv_counts = from_each;
    check_has(exchanged.run(world[rank]), Code::kInvalidArgument,
              "call 7: rank 2 sends 1 elements to rank 0, which expects 2");
    CHECK(exchanged.output == Numbers(4, -1));
    Sum after(group, {static_cast<double>(rank)});
    check_ok(after.run(world[rank]));
    CHECK(after.output[0] == 3);
  });
}

TEST_CASE("a large allreduce sums memory that the ranks share, their own, and both in one call") {
  FOR_BOTH_PLACES(has_hosts);
  World world(3, has_hosts);
  constexpr size_t kCount = 300000;
  world.ranks().each([&](int rank) {
    const int32_t group = world.group(rank, {0, 1, 2});
    auto memory = world.ranks().heap(rank).allocate(kCount * sizeof(double));
    REQUIRE(memory.ok());
    auto* const shared = static_cast<double*>(*memory);
    Numbers own(kCount);
    for (size_t turn = 0; turn < 24; ++turn) {
      const size_t count = turn % 3 == 0 ? 600 : turn % 3 == 1 ? 20001 : kCount - turn;
      // Bit r of `turn` is set if rank r uses shared memory.
      const bool is_shared = (turn >> rank & 1) != 0;
      double* const values = is_shared ? shared : own.data();
      for (size_t i = 0; i < count; ++i) values[i] = static_cast<double>(i + turn) + 1000 * rank;
      Sum sum(group, {0});
      sum.call.input = sum.call.output = values;
      sum.call.count = static_cast<int64_t>(count) + (turn == 10 && rank == 1 ? 1 : 0);
      const Status status = sum.run(world[rank]);
      const bool differs = turn == 10;
      if (differs) {
        check_has(status, Code::kInvalidArgument, cat("allreduce of ", count, " elements"));
      } else {
        check_ok(status);
      }
      size_t wrong = 0;
      for (size_t i = 0; i < count; ++i) {
        const auto place = static_cast<double>(i + turn);
        wrong += values[i] != (differs ? place + 1000 * rank : 3 * place + 3000);
      }
      CHECK(wrong == 0);
    }
    Sum last(group, {1});  // the peers have left the shared memory
    check_ok(last.run(world[rank]));
    check_ok(world.ranks().heap(rank).release(shared));
  });
}

TEST_CASE("allgather and reduce-scatter read inputs that the ranks share, their own, and both") {
  FOR_BOTH_PLACES(has_hosts);
  World world(3, has_hosts);
  constexpr size_t kMost = 100000;
  world.ranks().each([&](int rank) {
    const int32_t group = world.group(rank, {0, 1, 2});
    auto memory = world.ranks().heap(rank).allocate(3 * kMost * sizeof(double));
    REQUIRE(memory.ok());
    auto* const shared = static_cast<double*>(*memory);
    Numbers own(3 * kMost), apart(3 * kMost);
    for (size_t turn = 0; turn < 24; ++turn) {
      const size_t count = turn % 3 == 0 ? 600 : turn % 3 == 1 ? 20001 : kMost - turn;
      // Bit r of `turn` is set if rank r uses shared memory.
      double* const values = (turn >> rank & 1) != 0 ? shared : own.data();
      double* const mine = values + static_cast<size_t>(rank) * count;
      const bool differs = turn == 11;
      const auto run = [&](int32_t op, const double* input, double* output) {
        Call call(group, op, {0}, 1, static_cast<int64_t>(count) + (differs && rank == 1));
        call.call.input = input;
        call.call.output = output;
        const Status status = call.run(world[rank]);
        differs ? check_has(status, Code::kInvalidArgument, "elements of float64")
                : check_ok(status);
      };
      const auto value = [&](int of, size_t i) {
        return static_cast<double>(i + turn) + 1000 * of;
      };

      for (size_t i = 0; i < count; ++i) mine[i] = value(rank, i);
      double* const all = turn % 2 == 0 ? values : apart.data();
      run(HVD_ALLGATHER, mine, all);
      size_t wrong = 0;
      for (size_t i = 0; !differs && i < 3 * count; ++i)
        wrong += all[i] != value(static_cast<int>(i / count), i % count);
      CHECK(wrong == 0);

      for (size_t i = 0; i < 3 * count; ++i) values[i] = value(rank, i);
      run(HVD_REDUCESCATTER, values, apart.data());
      for (size_t i = 0; !differs && i < count; ++i)
        wrong += apart[i] != 3 * value(1, static_cast<size_t>(rank) * count + i);
      CHECK(wrong == 0);
    }
    Sum last(group, {1});  // the peers have left the shared memory
    check_ok(last.run(world[rank]));
    check_ok(world.ranks().heap(rank).release(shared));
  });
}

TEST_CASE("a group for which a host has no room fails on all its members alone") {
  if (!hvd::test::has_builtin_links()) return;
  World world(2, false);
  std::deque<int32_t> others;
  for (int i = 0; i < 240; ++i) {
    others.push_back(world.group(0, {0}));
    check_ok(Sum(others.back(), {1}).run(world[0]));
  }
  int32_t late[2];
  world.ranks().each([&](int rank) {
    const int32_t group = late[rank] = world.group(rank, {0, 1}, "late");
    for (int turn = 0; turn < 2; ++turn) {
      check_has(Sum(group, {1}).run(world[rank]), Code::kUnavailable,
                "group late: more than 240 process sets and groups at once share memory on this "
                "host; remove some");
    }
  });
  world.ranks().each([&](int rank) { check_ok(world[rank].destroy_group(late[rank])); });
  check_ok(world[0].destroy_group(others.front()));
  world.ranks().each([&](int rank) {
    Sum sum(world.group(rank, {0, 1}), {1});
    check_ok(sum.run(world[rank]));
    CHECK(sum.output[0] == 2);
  });
}

TEST_CASE("groups of the same ranks, and hvd_submit, advance in any order of the ranks") {
  FOR_BOTH_PLACES(has_hosts);
  World world(2, has_hosts);
  world.ranks().each([&](int rank) {
    const int32_t first = world.group(rank, {0, 1}), second = world.group(rank, {0, 1});
    for (int round = 0; round < 30; ++round) {
      const double number = round + rank;
      Sum a(first, {number}), b(second, Numbers(5000, number));
      Work named = sum_of("named", {static_cast<float>(number)});
      if (rank == 0) {
        check_ok(a.submit(world[rank]));
        check_ok(b.submit(world[rank]));
        check_ok(named.submit(world[rank]));
      } else {
        check_ok(named.submit(world[rank]));
        check_ok(b.submit(world[rank]));
        check_ok(a.submit(world[rank]));
      }
      check_ok((rank == 0 ? a : b).finish(world[rank]));
      check_ok((rank == 0 ? b : a).finish(world[rank]));
      check_ok(named.finish(world[rank]));
      CHECK(a.output[0] == 2 * round + 1);
      CHECK(b.output == Numbers(5000, 2 * round + 1));
      CHECK(named.result<float>()[0] == static_cast<float>(2 * round + 1));
    }
  });
}

TEST_CASE("memory of a call in flight is refused") {
  if (!hvd::test::has_builtin_links()) return;
  World world(2, false);
  int32_t groups[2];
  world.ranks().each([&](int rank) { groups[rank] = world.group(rank, {0, 1}); });
  Sum first(groups[0], {1, 2});
  check_ok(first.submit(world[0]));
  Sum second(groups[0], {1, 2});
  second.call.output = first.output.data();
  check_has(second.submit(world[0]), Code::kAlreadyExists,
            " overlaps the output of allreduce 'group g, call 1', which is in flight");
  Sum other(groups[1], {3, 4});
  check_ok(other.run(world[1]));
  check_ok(first.finish(world[0]));
  CHECK(first.output == Numbers{4, 6});
}

TEST_CASE("random calls of overlapping groups, in an own order across groups on each rank") {
  FOR_BOTH_PLACES(has_hosts);
  std::mt19937 random(5);
  for (int world_number = 0; world_number < 3; ++world_number) {
    const int size = 2 + world_number;
    World world(size, has_hosts);
    // The same list on all ranks: members, and the number of calls.
    std::vector<std::vector<int32_t>> members;
    for (int i = 0; i < 6; ++i) {
      std::vector<int32_t> ranks;
      for (int32_t rank = 0; rank < size; ++rank) {
        if (random() % 3 != 0) ranks.push_back(rank);
      }
      if (ranks.size() > 1) members.push_back(ranks);
    }
    std::vector<size_t> sizes;
    for (int i = 0; i < 40; ++i) sizes.push_back(1 + random() % (random() % 4 == 0 ? 20000 : 100));
    const unsigned seed = random();
    world.ranks().each([&](int rank) {
      std::mt19937 own(seed + static_cast<unsigned>(rank));
      struct Member {
        int32_t group;
        size_t ranks;
        double sum;
        size_t next = 0;
      };
      std::vector<Member> groups;
      for (const auto& ranks : members) {
        if (!std::binary_search(ranks.begin(), ranks.end(), rank)) continue;
        groups.push_back({world.group(rank, ranks), ranks.size(),
                          static_cast<double>(std::accumulate(ranks.begin(), ranks.end(), 0))});
      }
      std::deque<Sum> calls;
      std::vector<std::pair<size_t, double>>
          wanted;  // per call: index of its group, and the result
      std::vector<size_t> open;
      while (std::any_of(groups.begin(), groups.end(),
                         [](const Member& one) { return one.next < 20; })) {
        Member& one = groups[own() % groups.size()];
        if (one.next == 20) continue;
        const size_t count = sizes[one.next + 20 * (one.ranks % 2)];
        check_ok(calls.emplace_back(one.group, Numbers(count, rank + static_cast<double>(one.next)))
                     .submit(world[rank]));
        wanted.emplace_back(one.next, one.sum + static_cast<double>(one.ranks * one.next));
        open.push_back(calls.size() - 1);
        ++one.next;
      }
      std::shuffle(open.begin(), open.end(), own);
      for (const size_t i : open) {
        check_ok(calls[i].finish(world[rank]));
        CHECK(calls[i].output == Numbers(calls[i].output.size(), wanted[i].second));
      }
    });
  }
}

TEST_CASE("a member that leaves ends the later calls of its groups alone") {
  FOR_BOTH_PLACES(has_hosts);
  World world(3, has_hosts);
  world.ranks().each([&](int rank) {
    const int32_t all = world.group(rank, {0, 1, 2}, "all");
    check_ok(Sum(all, Numbers(3000, 1)).run(world[rank]));
    if (rank == 0) {
      check_ok(world[0].shutdown(Deadline::after_seconds(20)));
      return;
    }
    check_has(Sum(all, {1}).run(world[rank]), Code::kAborted,
              "group all, call 2 cannot run: Horovod has been shut down: rank 0 has ended");
    const int32_t pair = world.group(rank, {1, 2});
    for (int round = 0; round < 20; ++round) {
      Sum sum(pair, {1});
      check_ok(sum.run(world[rank]));
      CHECK(sum.output[0] == 2);
    }
  });
}

TEST_CASE("a member that destroys a group ends the later calls of that group alone") {
  FOR_BOTH_PLACES(has_hosts);
  World world(3, has_hosts);
  constexpr char kSentence[] = "group all, call 2 cannot run: rank 0 has destroyed the group";
  world.ranks().each([&](int rank) {
    Runtime& runtime = world[rank];
    const int32_t all = world.group(rank, {0, 1, 2}, "all"), other = world.group(rank, {0, 1, 2});
    check_ok(Sum(all, Numbers(3000, 1)).run(runtime));
    Sum open(all, Numbers(200000, 1));
    if (rank != 2) check_ok(open.submit(runtime));
    check_ok(Sum(other, {1}).run(runtime));
    if (rank == 0) {
      check_ok(runtime.destroy_group(all));
      check_has(open.finish(runtime), Code::kAborted, "group all was destroyed");
    } else if (rank == 1) {
      check_has(open.finish(runtime), Code::kAborted, kSentence);
      check_has(Sum(all, {1}).run(runtime), Code::kAborted, kSentence);
    }
    check_ok(Sum(other, {1}).run(runtime));
    if (rank == 2) check_has(open.run(runtime), Code::kAborted, kSentence);
    for (int round = 0; round < 20; ++round) check_ok(Sum(other, Numbers(5000, 1)).run(runtime));
    if (rank != 0) check_ok(runtime.destroy_group(all));
    check_ok(runtime.destroy_group(other));
    Sum later(world.group(rank, {0, 1, 2}), {1});
    check_ok(later.run(runtime));
    CHECK(later.output[0] == 3);
  });
}

namespace {

ptrdiff_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

// Calls come_and_go(rounds), and requires that no descriptors remain open.
template <typename Function>
void check_leaves_no_descriptors(World& world, int rounds, Function&& come_and_go) {
  come_and_go(world.ranks().size());
  int32_t last[3];
  world.ranks().each([&](int rank) { last[rank] = world.group(rank, {0, 1, 2}); });
  const auto pause = [&] {  // the ranks learn of each other's last group meanwhile
    world.ranks().each([&](int rank) {
      for (int i = 0; i < 50; ++i) check_ok(Sum(last[rank], {1}).run(world[rank]));
    });
  };
  pause();
  const auto before = descriptors();
  come_and_go(rounds);
  const Deadline deadline = Deadline::after_seconds(200);
  do pause();
  while (descriptors() > before && !deadline.passed());
  CHECK(descriptors() <= before);
}

}  // namespace

TEST_CASE("groups that come and go leave no streams") {
  if (!hvd::test::has_builtin_links()) return;
  World world(3, true);
  check_leaves_no_descriptors(world, 30, [&](int rounds) {
    world.ranks().each([&](int rank) {
      for (int round = 0; round < rounds; ++round) {
        const int32_t group = world.group(rank, {0, 1, 2});
        check_ok(Sum(group, Numbers(3000, 1)).run(world[rank]));
        check_ok(world[rank].destroy_group(group));
      }
    });
  });
}

TEST_CASE("groups of which some members call nothing leave no streams and no shared memory") {
  FOR_BOTH_PLACES(has_hosts);
  World world(3, has_hosts);
  int32_t all[3];
  world.ranks().each([&](int rank) { all[rank] = world.group(rank, {0, 1, 2}); });
  check_leaves_no_descriptors(world, has_hosts ? 60 : 750, [&](int rounds) {
    world.ranks().each([&](int rank) {
      Runtime& runtime = world[rank];
      for (int round = 0; round < rounds; ++round) {
        const int32_t group = world.group(rank, {0, 1, 2});
        // The leader of the host creates a group's shared memory.
        const int caller = round % 2 == 0 ? 0 : 1 + round / 2 % 2;
        Sum sum(group, Numbers(static_cast<size_t>(round % 3 == 0 ? 3000 : 3), 1));
        // Alternates: the call starts before the other ranks destroy the group, or perhaps later.
        const bool is_first = round / 4 % 4 != 3;
        const bool calls = rank == caller || (round % 7 == 0 && rank == (caller + 1) % 3);
        if (calls && is_first) check_ok(sum.submit(runtime));
        if (is_first) check_ok(Sum(all[rank], {1}).run(runtime));
        if (calls && !is_first) check_ok(sum.submit(runtime));
        if (!calls || round % 5 == 0) check_ok(runtime.destroy_group(group));
        if (calls) check_has(sum.finish(runtime), Code::kAborted, "destroyed");
        if (calls && round % 5 != 0) check_ok(runtime.destroy_group(group));
      }
    });
  });
  world.ranks().each([&](int rank) {
    const int32_t group = world.group(rank, {0, 1, 2});
    for (const size_t count : {1, 3000, 100000}) {
      Sum sum(group, counted(count, rank));
      check_ok(sum.run(world[rank]));
      CHECK(sum.output[count - 1] == 3 * static_cast<double>(count - 1) + 3000);
    }
  });
}

TEST_CASE("wrong arguments are refused in one sentence") {
  if (!hvd::test::has_builtin_links()) return;
  World world(2, false);
  Runtime& runtime = world[0];
  int32_t id = 0;
  check_has(runtime.create_group({1, 0}, "", &id), Code::kInvalidArgument, "they must ascend");
  check_has(runtime.create_group({0, 2}, "", &id), Code::kInvalidArgument,
            "they must be from 0 to 1");
  check_has(runtime.create_group({1}, "", &id), Code::kInvalidArgument,
            "rank 0 is not one of them");
  const int32_t group = world.group(0, {0, 1});
  Sum sum(group, {1});
  sum.call.op = HVD_JOIN;
  check_has(sum.run(runtime), Code::kInvalidArgument, "is not one of groups");
  sum.call.op = HVD_ALLREDUCE;
  sum.call.dtype = 99;
  check_has(sum.run(runtime), Code::kInvalidArgument, "dtype 99 is unknown");
  sum.call.dtype = HVD_BOOL;
  sum.call.reduce_op = HVD_AVERAGE;
  check_has(sum.run(runtime), Code::kInvalidArgument, "an average of bool; use the sum");
  sum.call.dtype = HVD_INT64;
  sum.call.reduce_op = HVD_ADASUM;
  check_has(sum.run(runtime), Code::kInvalidArgument, "reduction 2 is not one of groups");
  sum.call.reduce_op = HVD_SUM;
  sum.call.output = nullptr;
  check_has(sum.run(runtime), Code::kInvalidArgument, "its output is NULL");
  sum.call.output = sum.output.data();
  sum.call.count = INT64_MAX;
  check_has(sum.run(runtime), Code::kInvalidArgument, "its counts are impossible");
  sum.call.op = HVD_BROADCAST;
  sum.call.count = 1;
  sum.call.root_rank = 5;
  check_has(sum.run(runtime), Code::kInvalidArgument, "invalid root rank 5");
  sum.call.op = HVD_ALLTOALL;
  check_has(sum.run(runtime), Code::kInvalidArgument, "send_counts and recv_counts are needed");
  Ranks memory(1);
  check_has(memory[0].create_group({0}, "", &id), Code::kUnimplemented, "the built-in controller");
}
