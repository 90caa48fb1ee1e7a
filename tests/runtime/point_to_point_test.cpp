// Sends and receives between the ranks of one process, over each kind of link.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "base/text.h"
#include "collectives/shm/shared_heap.h"
#include "runtime/link_store.h"
#include "runtime/point_to_point/message_matcher.h"
#include "runtime/rank_checks.h"
#include "runtime/trace_reader.h"

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

// One send or receive with its buffer.
struct Message {
  Message(int32_t of, int32_t rank, size_t size, int32_t tag = 0) : op(of), bytes(size) {
    message.struct_size = sizeof message;
    message.rank = rank;
    message.tag = tag;
    message.dtype = HVD_UINT8;
    message.count = static_cast<int64_t>(size);
    message.data = bytes.data();
  }
  Message(Message&&) = delete;

  // Returns pseudorandom bytes of the seed.
  Message& fill(uint32_t seed) {
    for (auto& byte : bytes)
      byte = static_cast<unsigned char>((seed = seed * 1664525 + 1013904223) >> 24);
    return *this;
  }
  Status submit(Runtime& runtime) { return runtime.submit_message(op, message, &handle); }
  Status finish(Runtime& runtime) {
    const std::optional<Status> status = runtime.wait(handle, Deadline::after_seconds(200));
    if (!status) return hvd::deadline_exceeded("a message is not complete after 60 s");
    hvd_output output{};
    if (status->ok() && runtime.output(handle, 0, &output).ok()) source = output.source_rank;
    const Status released = runtime.release(handle);
    return status->ok() ? released : *status;
  }
  Status run(Runtime& runtime) {
    const Status status = submit(runtime);
    return status.ok() ? finish(runtime) : status;
  }

  const int32_t op;
  std::vector<unsigned char> bytes;
  hvd_message message{};
  hvd_handle handle = 0;
  int32_t source = -1;
};

struct Send : Message {
  Send(int32_t to, size_t size, int32_t tag = 0) : Message(HVD_SEND, to, size, tag) {}
};
struct Receive : Message {
  Receive(int32_t from, size_t size, int32_t tag = 0) : Message(HVD_RECV, from, size, tag) {}
};

void check_ok(const Status& status) { CHECK_MESSAGE(status.ok(), status.message()); }
void check_has(const Status& status, Code code, const std::string& text) {
  CHECK(status.code() == code);
  CHECK_MESSAGE(status.message().find(text) != std::string::npos, status.message());
}

// The links between a test's ranks, for each protocol of large messages.
enum class Way { kPieces, kMailboxes, kRings, kStreams };

class World {
 public:
  World(int size, Way way, std::vector<std::vector<int32_t>> process_sets = {}) {
    RanksOptions options;
    if (way != Way::kPieces) options.links = Links::kBuiltin;
    if (way == Way::kStreams) options = over_relay(relay_, machine_each(size));
    options.process_sets = std::move(process_sets);
    options.has_heaps = way == Way::kRings;
    ranks_.emplace(size, options);
    require_started(*ranks_);
  }
  ~World() {
    ranks_.reset();
    relay_.abandon();
  }
  Ranks& ranks() { return *ranks_; }
  Runtime& operator[](int rank) { return (*ranks_)[rank]; }

 private:
  Relay relay_;
  std::optional<Ranks> ranks_;
};

std::vector<Way> all_ways() {
  if (!hvd::test::has_builtin_links()) return {Way::kPieces};
  return {Way::kPieces, Way::kMailboxes, Way::kRings, Way::kStreams};
}

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace

TEST_CASE("messages of any size arrive as they were sent, before and after their receives") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    World world(2, way);
    world.ranks().each([&](int rank) {
      for (const size_t size : {0, 1, 4, 2048, 2049, 33000, 300000, 1 << 20}) {
        CAPTURE(size);
        for (const bool receives_first : {true, false}) {
          Send send(1 - rank, size);
          Receive receive(1 - rank, size);
          send.fill(static_cast<uint32_t>(size) + static_cast<uint32_t>(rank));
          if (receives_first) check_ok(receive.submit(world[rank]));
          if (receives_first && rank == 0) sleep_ms(2);
          check_ok(send.submit(world[rank]));
          if (!receives_first && rank == 1) sleep_ms(2);
          if (!receives_first) check_ok(receive.submit(world[rank]));
          check_ok(receive.finish(world[rank]));
          check_ok(send.finish(world[rank]));
          Send expected(0, size);
          expected.fill(static_cast<uint32_t>(size) + static_cast<uint32_t>(1 - rank));
          CHECK(receive.bytes == expected.bytes);
          CHECK(receive.source == 1 - rank);
        }
      }
    });
  }
}

TEST_CASE("very large messages travel in both directions at once") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    const size_t size = way == Way::kPieces || way == Way::kMailboxes ? 4 << 20 : 64 << 20;
    World world(2, way);
    world.ranks().each([&](int rank) {
      Send send(1 - rank, size);
      Receive receive(1 - rank, size);
      send.fill(static_cast<uint32_t>(rank));
      check_ok(send.submit(world[rank]));
      check_ok(receive.submit(world[rank]));
      check_ok(send.finish(world[rank]));
      check_ok(receive.finish(world[rank]));
      Send expected(0, size);
      CHECK(receive.bytes == expected.fill(static_cast<uint32_t>(1 - rank)).bytes);
    });
  }
}

TEST_CASE("a message in shared memory is copied from there") {
  if (!hvd::test::has_builtin_links()) return;
  World world(2, Way::kRings);
  constexpr size_t kSize = 3 << 20;
  for (const bool is_withdrawn : {false, true}) {
    auto memory = world.ranks().heap(0).allocate(kSize);
    REQUIRE(memory.ok());
    Send send(1, kSize);
    std::memcpy(*memory, send.fill(8).bytes.data(), kSize);
    send.message.data = *memory;
    if (is_withdrawn) {
      send.message.timeout_seconds = 0.01;
      check_has(send.run(world[0]), Code::kDeadlineExceeded, "rank 1 has not received it");
    } else {
      check_ok(send.submit(world[0]));
      Receive receive(0, kSize);
      check_ok(receive.run(world[1]));
      CHECK(receive.bytes == send.bytes);
      check_ok(send.finish(world[0]));
    }
    check_ok(world.ranks().heap(0).release(*memory));
  }
}

// In some rounds, a withdrawal meets a receive that has just begun to copy the memory.
TEST_CASE("memory of a send that failed is read by no receive") {
  if (!hvd::test::has_builtin_links()) return;
  World world(2, Way::kRings);
  constexpr size_t kSize = 1 << 20;
  auto memory = world.ranks().heap(0).allocate(kSize);
  REQUIRE(memory.ok());
  std::mt19937 random(1);
  int withdrawn = 0;
  for (int round = 0; round < 100; ++round) {
    CAPTURE(round);
    const auto pause = std::chrono::microseconds(700 + random() % 600);
    Send lent(1, kSize);
    std::memcpy(*memory, lent.fill(1).bytes.data(), kSize);
    lent.message.data = *memory;
    lent.message.timeout_seconds = 0.001;
    Send next(1, kSize);
    next.fill(2);
    bool has_failed = false;
    Receive receive(0, kSize);
    world.ranks().each([&](int rank) {
      if (rank == 1) {
        std::this_thread::sleep_for(pause);
        check_ok(receive.run(world[1]));
        return;
      }
      has_failed = !lent.run(world[0]).ok();
      std::memset(*memory, 3, kSize);
      next.message.timeout_seconds = 5;
      if (has_failed) check_ok(next.run(world[0]));
    });
    REQUIRE(receive.bytes == (has_failed ? next : lent).bytes);
    withdrawn += has_failed ? 1 : 0;
  }
  MESSAGE(withdrawn, " of 100 sends were withdrawn");
  check_ok(world.ranks().heap(0).release(*memory));
}

TEST_CASE("a receive whose message was withdrawn comes before the later ones again") {
  using hvd::runtime::ArrivedMessage;
  hvd::runtime::MessageMatcher matcher;
  hvd::runtime::Submission receives[3];
  for (uint64_t i = 0; i < 3; ++i) {
    receives[i].message.peer = i == 1 ? HVD_ANY_RANK : 1;
    receives[i].message.order = i;
    CHECK(matcher.match(&receives[i]) == nullptr);
  }
  REQUIRE(matcher.match(0, 0, 1) == &receives[0]);
  CHECK(matcher.match(&receives[0]) == nullptr);
  for (auto& receive : receives) CHECK(matcher.match(0, 0, 1) == &receive);
}

TEST_CASE("a receive takes the oldest message with its tag, whatever comes with other tags") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    World world(2, way);
    world.ranks().each([&](int rank) {
      const size_t sizes[] = {4, 2000, 50000};
      std::deque<Message> all;
      for (int32_t i = 0; i < 12; ++i) {
        const int32_t number = rank == 0 ? i : 11 - i;  // tags 2, 1, 0, 2, ... are received first
        const int32_t tag = number % 3;
        Message& one = rank == 0
                           ? static_cast<Message&>(all.emplace_back(HVD_SEND, 1, sizes[tag], tag))
                           : all.emplace_back(HVD_RECV, 0, sizes[tag], tag);
        if (rank == 0) one.fill(static_cast<uint32_t>(i));
        check_ok(one.submit(world[rank]));
      }
      for (Message& one : all) check_ok(one.finish(world[rank]));
      if (rank == 0) return;
      // The n-th receive of a tag gets the n-th message with this tag.
      int32_t next[3] = {0, 1, 2};
      for (const Message& one : all) {
        Send expected(0, one.bytes.size());
        expected.fill(static_cast<uint32_t>(next[one.message.tag]));
        next[one.message.tag] += 3;
        CHECK(one.bytes == expected.bytes);
      }
    });
  }
}

TEST_CASE("a receive from any rank says who sent") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    World world(3, way);
    for (const size_t size : {4, 20000}) {
      world.ranks().each([&](int rank) {
        if (rank != 1) {
          Send send(1, size, 3);
          check_ok(send.fill(static_cast<uint32_t>(rank)).run(world[rank]));
          return;
        }
        int32_t sum = 0;
        for (int i = 0; i < 2; ++i) {
          Receive receive(HVD_ANY_RANK, size, 3);
          check_ok(receive.run(world[rank]));
          Send expected(0, size);
          CHECK(receive.bytes == expected.fill(static_cast<uint32_t>(receive.source)).bytes);
          sum += receive.source;
        }
        CHECK(sum == 2);
      });
    }
  }
}

TEST_CASE("a rank sends to itself") {
  World world(1, Way::kPieces);
  for (const size_t size : {0, 100, 100000}) {
    for (const bool receives_first : {true, false}) {
      Send send(0, size);
      Receive receive(HVD_ANY_RANK, size);
      send.fill(7);
      if (receives_first) check_ok(receive.submit(world[0]));
      check_ok(send.submit(world[0]));
      if (!receives_first) check_ok(receive.submit(world[0]));
      check_ok(receive.finish(world[0]));
      check_ok(send.finish(world[0]));
      CHECK(receive.bytes == send.bytes);
      CHECK(receive.source == 0);
    }
  }
}

TEST_CASE("types and counts that differ fail where they can, and the job goes on") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    World world(2, way);
    for (const size_t size : {8, 80000}) {
      world.ranks().each([&](int rank) {
        if (rank == 0) {
          Send send(1, size);
          const Status status = send.run(world[0]);
          if (size > 4096)
            check_has(status, Code::kInvalidArgument, "rank 0 sends 80000 elements of uint8");
        } else {
          Receive receive(0, size);
          receive.message.dtype = HVD_FLOAT32;
          receive.message.count /= 4;
          check_has(
              receive.run(world[1]), Code::kInvalidArgument,
              hvd::cat("recv from rank 0, tag 0 has memory for ", size / 4,
                       " elements of float32, but rank 0 sends ", size, " elements of uint8"));
        }
        Work work = sum_of("after");
        check_ok(work.run(world[rank]));
      });
    }
  }
}

TEST_CASE("arguments that cannot be right are refused in one sentence") {
  World world(2, Way::kPieces, {{1}});
  Runtime& runtime = world[0];
  check_has(Send(2, 4).run(runtime), Code::kInvalidArgument,
            "send to rank 2, tag 0: invalid rank 2");
  check_has(Send(HVD_ANY_RANK, 4).run(runtime), Code::kInvalidArgument, "invalid rank -1");
  check_has(Send(1, 4, -1).run(runtime), Code::kInvalidArgument, "the tag must not be negative");
  Receive receive(1, 4);
  receive.message.dtype = 77;
  check_has(receive.run(runtime), Code::kInvalidArgument, "dtype 77 is unknown");
  receive.message.dtype = HVD_UINT8;
  receive.message.data = nullptr;
  check_has(receive.run(runtime), Code::kInvalidArgument, "its memory is NULL");
  receive.message.count = -1;
  check_has(receive.run(runtime), Code::kInvalidArgument, "a count of -1 is impossible");
  receive.message.count = 4;
  receive.message.process_set = 9;
  check_has(receive.run(runtime), Code::kNotFound, "process set 9 does not exist");
  receive.message.process_set = 1;
  check_has(receive.run(runtime), Code::kInvalidArgument,
            "rank 0 is not a member of process set 1");
  receive.message = Receive(1, 4).message;
  receive.message.data = receive.bytes.data();
  receive.message.timeout_seconds = -1;
  check_has(receive.run(runtime), Code::kInvalidArgument, "a time limit of -1 s is impossible");
  hvd_submission submission{};
  submission.struct_size = sizeof submission;
  submission.op = HVD_SEND;
  hvd_handle handle = 0;
  check_has(runtime.submit(submission, &handle), Code::kInvalidArgument, "call hvd_send");
}

TEST_CASE("memory in flight is refused") {
  World world(2, Way::kPieces);
  Receive first(1, 64, 1);
  check_ok(first.submit(world[0]));
  Receive second(1, 64, 2);
  second.message.data = first.bytes.data() + 8;
  second.message.count = 8;
  check_has(second.submit(world[0]), Code::kAlreadyExists,
            "recv from rank 1, tag 2: its output overlaps the output of recv from rank 1, tag 1");
  Send send(0, 64, 1);
  check_ok(send.run(world[1]));
  check_ok(first.finish(world[0]));
}

TEST_CASE("a time limit ends a send or receive without a counterpart, and nothing else") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    World world(2, way);
    Receive receive(1, 4, 5);
    receive.message.timeout_seconds = 0.05;
    check_has(
        receive.run(world[0]), Code::kDeadlineExceeded,
        "recv from rank 1, tag 5 has waited for its time limit of 0.05 s: rank 1 has not sent it");
    Receive any(HVD_ANY_RANK, 4, 6);
    any.message.timeout_seconds = 0.01;
    check_has(any.run(world[0]), Code::kDeadlineExceeded, "no rank has sent it");
    Send large(1, 100000, 5);
    large.message.timeout_seconds = 0.05;
    check_has(large.run(world[0]), Code::kDeadlineExceeded, "rank 1 has not received it");
    // The withdrawn message does not block later messages.
    Send next(1, 100000, 5);
    next.fill(5);
    check_ok(next.submit(world[0]));
    Receive got(0, 100000, 5);
    check_ok(got.run(world[1]));
    CHECK(got.bytes == next.bytes);
    check_ok(next.finish(world[0]));
  }
}

TEST_CASE("process sets have messages of their own, which end with the set") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    World world(3, way, {{0, 2}});
    world.ranks().each([&](int rank) {
      if (rank == 1) return;
      const int32_t other = 2 - rank;
      Send in_set(other, 4), in_job(other, 4);
      in_set.message.process_set = 1;
      check_ok(in_set.fill(1).run(world[rank]));
      check_ok(in_job.fill(2).run(world[rank]));
      Receive from_job(other, 4), from_set(other, 4);
      from_set.message.process_set = 1;
      check_ok(from_job.run(world[rank]));
      check_ok(from_set.run(world[rank]));
      CHECK(from_job.bytes == in_job.bytes);
      CHECK(from_set.bytes == in_set.bytes);
    });
    Receive pending(2, 4);
    pending.message.process_set = 1;
    check_ok(pending.submit(world[0]));
    Send lent(2, 100000);
    lent.message.process_set = 1;
    if (way == Way::kRings) lent.message.data = *world.ranks().heap(0).allocate(lent.bytes.size());
    check_ok(lent.submit(world[0]));
    world.ranks().each([&](int rank) {
      hvd_handle handle = 0;
      check_ok(world[rank].remove_process_set(1, &handle));
      CHECK(world[rank].wait(handle, Deadline::after_seconds(200))->ok());
    });
    check_has(pending.finish(world[0]), Code::kNotFound, "process set 1 was removed");
    check_has(lent.finish(world[0]), Code::kNotFound, "process set 1 was removed");
  }
}

TEST_CASE("messages that nobody received leave room when their process set is removed") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    World world(3, way, {{0, 1}});
    const auto is_done_at_once = [&](int32_t set) {
      Send send(1, 2000, 1);
      send.message.process_set = set;
      send.message.timeout_seconds = 0.01;
      check_ok(send.submit(world[0]));
      bool done = false;
      check_ok(world[0].poll(send.handle, &done));
      if (send.finish(world[0]).ok()) return true;
      CHECK(!done);
      return false;
    };
    int sent = 0;
    while (is_done_at_once(1)) ++sent;
    CHECK(sent > 2000);
    CHECK(!is_done_at_once(0));
    world.ranks().each([&](int rank) {
      hvd_handle handle = 0;
      check_ok(world[rank].remove_process_set(1, &handle));
      CHECK(world[rank].wait(handle, Deadline::after_seconds(200))->ok());
    });
    const Deadline deadline = Deadline::after_seconds(200);
    bool has_room = is_done_at_once(0);
    while (!has_room && !deadline.passed()) has_room = is_done_at_once(0);
    CHECK(has_room);
  }
}

TEST_CASE("messages and collectives advance side by side") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    World world(3, way);
    world.ranks().each([&](int rank) {
      Receive pending((rank + 2) % 3, 50000, 1);
      check_ok(pending.submit(world[rank]));
      for (int round = 0; round < 50; ++round) {
        Work work = sum_of("step", {static_cast<float>(round)});
        check_ok(work.submit(world[rank]));
        Send send((rank + 1) % 3, 4 + static_cast<size_t>(round) * 400);
        Receive receive((rank + 2) % 3, send.bytes.size());
        check_ok(send.submit(world[rank]));
        check_ok(receive.run(world[rank]));
        check_ok(work.finish(world[rank]));
        check_ok(send.finish(world[rank]));
        CHECK(work.result<float>()[0] == static_cast<float>(3 * round));
      }
      Send last((rank + 1) % 3, 50000, 1);
      check_ok(last.submit(world[rank]));
      check_ok(pending.finish(world[rank]));
      check_ok(last.finish(world[rank]));
    });
  }
}

TEST_CASE("a sender of small messages that nobody receives is held back, and none is lost") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    World world(2, way);
    constexpr int kMessages = 3000;
    std::deque<Send> sends;
    int complete = 0;
    for (int i = 0; i < kMessages; ++i) {
      sends.emplace_back(1, 2000).fill(static_cast<uint32_t>(i));
      check_ok(sends.back().submit(world[0]));
      bool done = false;
      check_ok(world[0].poll(sends.back().handle, &done));
      complete += done ? 1 : 0;
    }
    CHECK(complete > 100);
    CHECK(complete < 2200);  // at most 4 MiB of messages
    world.ranks().each([&](int rank) {
      for (int i = 0; i < kMessages; ++i) {
        if (rank == 0) {
          check_ok(sends[static_cast<size_t>(i)].finish(world[0]));
          continue;
        }
        Receive receive(0, 2000);
        check_ok(receive.run(world[1]));
        REQUIRE(receive.bytes == sends[static_cast<size_t>(i)].bytes);
      }
    });
    // The buffer space is free again.
    Send again(1, 2000);
    check_ok(again.submit(world[0]));
    bool done = false;
    check_ok(world[0].poll(again.handle, &done));
    CHECK(done);
    check_ok(Receive(0, 2000).run(world[1]));
    check_ok(again.finish(world[0]));
  }
}

TEST_CASE("messages that were sent before a shutdown can be received after it") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    World world(2, way);
    world.ranks().each([&](int rank) {
      if (rank == 0) {
        Send small(1, 4, 1);
        check_ok(small.fill(1).run(world[0]));
        Send large(1, 100000, 2);
        check_ok(large.fill(2).submit(world[0]));
        check_ok(large.finish(world[0]));
        check_ok(world[0].shutdown(Deadline::after_seconds(20)));
        return;
      }
      Receive large(0, 100000, 2);
      check_ok(large.run(world[1]));
      CHECK(large.bytes == Send(0, 100000).fill(2).bytes);
      // A refused collective shows that rank 0 has shut down.
      for (Status status; status.ok();) {
        Work work = sum_of("alone");
        status = work.run(world[1]);
      }
      Receive small(0, 4, 1);
      check_ok(small.run(world[1]));
      CHECK(small.bytes == Send(0, 4).fill(1).bytes);
      check_has(Receive(0, 4, 1).run(world[1]), Code::kAborted,
                "recv from rank 0, tag 1 cannot run: Horovod has been shut down: rank 0 has ended");
      check_has(Send(0, 4, 1).run(world[1]), Code::kAborted, "rank 0 has ended");
      check_has(Receive(HVD_ANY_RANK, 4).run(world[1]), Code::kAborted, "rank 0 has ended");
    });
  }
}

TEST_CASE("two ranks exchange messages after a third one has left, until one of them leaves") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    World world(3, way);
    std::atomic<bool> has_left{false};
    world.ranks().each([&](int rank) {
      if (rank == 0) {
        check_ok(world[0].shutdown(Deadline::after_seconds(20)));
        has_left = true;
        return;
      }
      for (int round = 0;; ++round) {
        const size_t size = round % 2 == 0 ? 4 : 60000;
        Send send(3 - rank, size);
        Receive receive(3 - rank, size);
        send.fill(static_cast<uint32_t>(round));
        check_ok(send.submit(world[rank]));
        check_ok(receive.run(world[rank]));
        check_ok(send.finish(world[rank]));
        CHECK(receive.bytes == send.bytes);
        // The same message tells both ranks whether this was the last round.
        Send flag(3 - rank, 1, 1);
        flag.bytes[0] = has_left ? 1 : 0;
        Receive other(3 - rank, 1, 1);
        check_ok(flag.run(world[rank]));
        check_ok(other.run(world[rank]));
        if (round >= 20 && (flag.bytes[0] != 0 || other.bytes[0] != 0)) break;
      }
      if (way == Way::kPieces) return;  // links that do not report a shutdown
      if (rank == 1) {
        sleep_ms(10);
        check_ok(world[1].shutdown(Deadline::after_seconds(20)));
        return;
      }
      Receive last(1, 4, 9);
      check_has(last.run(world[2]), Code::kAborted, "rank 1 has ended");
    });
  }
}

TEST_CASE("transfers fail when their other rank leaves without them") {
  for (const Way way : all_ways()) {
    if (way == Way::kPieces) continue;  // links that do not report a shutdown
    CAPTURE(static_cast<int>(way));
    World world(3, way);
    Send send(2, 64 << 20);
    world.ranks().each([&](int rank) {
      if (rank == 0) {
        check_ok(world[0].shutdown(Deadline::after_seconds(20)));
        return;
      }
      for (Status status; status.ok();) status = sum_of("rank 0 leaves").run(world[rank]);
      if (rank == 1) check_ok(send.submit(world[1]));
    });
    sleep_ms(50);
    Receive receive(1, 64 << 20);
    check_ok(receive.submit(world[2]));
    // The call returns without waiting.
    check_ok(world[2].shutdown(Deadline::after_seconds(0)));
    check_has(receive.finish(world[2]), Code::kAborted, "this rank called shutdown");
    const Status failed = send.finish(world[1]);
    CHECK(failed.code() == Code::kAborted);
    // The receiver's kernel resets a connection that is closed with unread data.
    const bool is_reset =
        way == Way::kStreams && failed.message().find("reset") != std::string::npos;
    CHECK_MESSAGE((is_reset || failed.message().find("rank 2 has ended") != std::string::npos),
                  failed.message());
  }
}

TEST_CASE("a receive that was posted before a rank left hears that its own other rank leaves") {
  for (const Way way : all_ways()) {
    if (way == Way::kPieces) continue;  // links that do not report a shutdown
    CAPTURE(static_cast<int>(way));
    World world(3, way);
    Receive receive(1, 4);
    check_ok(receive.submit(world[2]));
    world.ranks().each([&](int rank) {
      if (rank == 0) {
        check_ok(world[0].shutdown(Deadline::after_seconds(20)));
        return;
      }
      for (Status status; status.ok();) status = sum_of("rank 0 leaves").run(world[rank]);
      if (rank == 2) return;
      sleep_ms(500);  // rank 2 connects to rank 1
      check_ok(world[1].shutdown(Deadline::after_seconds(20)));
    });
    check_has(receive.finish(world[2]), Code::kAborted, "rank 1 has ended");
  }
}

TEST_CASE("ranks that leave in good order keep no memory") {
  if (!hvd::test::has_builtin_links()) return;
  World world(2, Way::kRings);
  const auto blocks = [&](int rank) {
    struct stat info {};
    REQUIRE(::fstat(*world.ranks().heap(rank).file(), &info) == 0);
    return info.st_blocks;
  };
  const auto before = blocks(0);
  world.ranks().each([&](int rank) {
    Message one(rank == 0 ? HVD_SEND : HVD_RECV, 1 - rank, 1 << 20);
    check_ok(one.run(world[rank]));
  });
  CHECK(blocks(0) > before);
  world.ranks().shutdown();
  CHECK(blocks(0) == before);
}

TEST_CASE("a shutdown withdraws what has no counterpart") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    World world(2, way);
    Receive receive(1, 4);
    Send send(1, 100000);
    if (way == Way::kRings) send.message.data = *world.ranks().heap(0).allocate(send.bytes.size());
    check_ok(receive.submit(world[0]));
    check_ok(send.submit(world[0]));
    Receive theirs(0, 4, 7);
    check_ok(theirs.submit(world[1]));
    check_ok(world[0].shutdown(Deadline::after_seconds(20)));
    check_has(receive.finish(world[0]), Code::kAborted, "this rank called shutdown");
    check_has(send.finish(world[0]), Code::kAborted, "this rank called shutdown");
    check_has(theirs.finish(world[1]), Code::kAborted, "rank 0 has ended");
    check_has(Send(1, 4).run(world[0]), Code::kAborted, "this rank called shutdown");
  }
}

TEST_CASE("a lost rank fails sends and receives on all ranks with the same cause") {
  RanksOptions options;
  Ranks ranks(3, options);
  require_started(ranks);
  std::vector<Status> statuses(3);
  ranks.each([&](int rank) {
    if (rank == 2) {
      sleep_ms(20);
      ranks.world().lose(2);
      return;
    }
    Receive receive(rank == 0 ? 1 : HVD_ANY_RANK, 4);
    statuses[static_cast<size_t>(rank)] = receive.run(ranks[rank]);
  });
  CHECK(statuses[0].code() == Code::kAborted);
  CHECK(statuses[0].message() == statuses[1].message());
  check_has(statuses[0], Code::kAborted, "rank 2");
  check_has(Receive(1, 4).run(ranks[0]), Code::kAborted, "rank 2");
}

TEST_CASE("a receive that waits causes no step") {
  for (const Way way : all_ways()) {
    CAPTURE(static_cast<int>(way));
    World world(2, way);
    Send warm(1, 100000);
    check_ok(warm.submit(world[0]));
    check_ok(Receive(0, 100000).run(world[1]));
    check_ok(warm.finish(world[0]));
    Receive receive(0, 4);
    check_ok(receive.submit(world[1]));
    // Threads poll for work for a while, longer on a busy machine.
    const auto steps = [&] { return std::pair(world[0].counts().steps, world[1].counts().steps); };
    bool is_idle = false;
    for (int attempt = 0; attempt < 10 && !is_idle; ++attempt) {
      const auto before = steps();
      sleep_ms(200);
      is_idle = steps() == before;
    }
    CHECK(is_idle);
    check_ok(Send(1, 4).run(world[0]));
    check_ok(receive.finish(world[1]));
  }
}

TEST_CASE("timeline and metrics have messages, with the wait for the other rank") {
  World world(2, Way::kPieces);
  const std::string path =
      std::filesystem::temp_directory_path() / hvd::cat("hvd-messages-", ::getpid());
  REQUIRE(world[0].observation().start_timeline(path, false).ok());
  world.ranks().each([&](int rank) {
    Work both_record = sum_of("both record");
    check_ok(both_record.run(world[rank]));
    Message one(rank == 0 ? HVD_SEND : HVD_RECV, 1 - rank, 5, 3);
    check_ok(one.run(world[rank]));
  });
  const auto metrics = world[1].observation().metrics(HVD_METRICS_RANK);
  REQUIRE(metrics.ok());
  CHECK(metrics->find("operation=\"recv\"} 1\n") != std::string::npos);
  CHECK(metrics->find("operation=\"recv\"} 5\n") != std::string::npos);  // the number of bytes
  CHECK(metrics->find("operation=\"send\"} 1\n") == std::string::npos);
  REQUIRE(world[0].observation().stop_timeline().ok());
  const hvd::test::Trace trace = hvd::test::read_trace(path);
  std::filesystem::remove(path);
  using Words = std::vector<std::string>;
  CHECK(trace.of("send to rank 1, tag 3", 0) ==
        Words{"B WAIT_SEND", "X 0", "E", "B SEND", "B SHM_SEND", "E", "E uint8 [5]"});
  CHECK(trace.of("recv from rank 0, tag 3", 1) ==
        Words{"B WAIT_RECV", "X 1", "E", "B RECV", "B SHM_RECV", "E", "E uint8 [5]"});
}

namespace {

// One rank's part of a random program of messages.
struct Call {
  bool sends = false;
  int32_t rank = 0;
  int32_t tag = 0;
  uint32_t number = 0;  // set for a send
  bool waits = false;   // pause before the next call
};

// Tags from 10 on are received from any rank.
size_t size_of_tag(int32_t tag) {
  constexpr size_t kSizes[] = {4, 64, 2048, 2100, 40000};
  return kSizes[tag % 5];
}

// Each message has a receive. Only small sends wait; receives have a random order.
std::vector<std::vector<Call>> random_program(std::mt19937& random, int size) {
  std::vector<std::vector<Call>> sends(static_cast<size_t>(size)), receives(sends.size());
  const int count = 1 + static_cast<int>(random() % 40);
  for (int i = 0; i < count; ++i) {
    const auto from = static_cast<int32_t>(random() % static_cast<unsigned>(size));
    const auto to = static_cast<int32_t>(random() % static_cast<unsigned>(size));
    const auto tag = static_cast<int32_t>(random() % 15);
    const bool waits = size_of_tag(tag) <= 2048 && random() % 3 == 0;
    sends[static_cast<size_t>(from)].push_back({true, to, tag, static_cast<uint32_t>(i), waits});
    receives[static_cast<size_t>(to)].push_back(
        {false, tag < 10 ? from : HVD_ANY_RANK, tag, 0, false});
  }
  std::vector<std::vector<Call>> program(sends.size());
  for (size_t rank = 0; rank < program.size(); ++rank) {
    std::shuffle(receives[rank].begin(), receives[rank].end(), random);
    auto& calls = program[rank];
    size_t s = 0, r = 0;
    while (s < sends[rank].size() || r < receives[rank].size()) {
      const bool takes_send =
          r == receives[rank].size() || (s < sends[rank].size() && random() % 2 == 0);
      calls.push_back(takes_send ? sends[rank][s++] : receives[rank][r++]);
    }
  }
  return program;
}

struct Got {
  int32_t tag, asked, source;
  uint32_t number;
};

std::vector<Got> play(Runtime& runtime, const std::vector<Call>& calls, unsigned seed) {
  std::mt19937 random(seed);
  std::deque<Message> messages;
  std::vector<size_t> open;
  for (size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    Message& one = messages.emplace_back(call.sends ? HVD_SEND : HVD_RECV, call.rank,
                                         size_of_tag(call.tag), call.tag);
    if (call.sends) {
      one.fill(call.number);
      std::memcpy(one.bytes.data(), &call.number, sizeof call.number);
    }
    check_ok(one.submit(runtime));
    if (call.waits)
      check_ok(one.finish(runtime));
    else
      open.push_back(i);
  }
  std::shuffle(open.begin(), open.end(), random);
  for (const size_t i : open) check_ok(messages[i].finish(runtime));
  std::vector<Got> got;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].sends) continue;
    uint32_t number = 0;
    std::memcpy(&number, messages[i].bytes.data(), sizeof number);
    Send expected(0, messages[i].bytes.size());
    expected.fill(number);
    std::memcpy(expected.bytes.data(), &number, sizeof number);
    CHECK(messages[i].bytes == expected.bytes);
    got.push_back({calls[i].tag, calls[i].rank, messages[i].source, number});
  }
  return got;
}

// Checks that messages of one sender and tag arrive in the order of their sends, each once.
void judge(const std::vector<std::vector<Call>>& program, int32_t rank,
           const std::vector<Got>& got) {
  std::map<std::pair<int32_t, int32_t>, std::deque<uint32_t>> sent;  // indexed by sender and tag
  for (size_t from = 0; from < program.size(); ++from) {
    for (const Call& call : program[from]) {
      if (!call.sends || call.rank != rank) continue;
      sent[{static_cast<int32_t>(from), call.tag}].push_back(call.number);
    }
  }
  for (const Got& one : got) {
    if (one.asked != HVD_ANY_RANK) CHECK(one.source == one.asked);
    auto& queue = sent[{one.source, one.tag}];
    REQUIRE(!queue.empty());
    CHECK(one.number == queue.front());
    queue.pop_front();
  }
  for (const auto& [key, queue] : sent) CHECK(queue.empty());
}

}  // namespace

TEST_CASE("random programs of sends and receives come out as a simple model says") {
  const auto ways = all_ways();
  const int each = HVD_TEST_PROGRAMS / static_cast<int>(ways.size());
  for (const Way way : ways) {
    std::mt19937 random(20 + static_cast<unsigned>(way));
    for (int done = 0; done < each;) {
      const int size = 2 + static_cast<int>(random() % 3);
      World world(size, way);
      for (int i = 0; i < 50 && done < each; ++i, ++done) {
        CAPTURE(static_cast<int>(way));
        CAPTURE(done);
        const auto program = random_program(random, size);
        const unsigned seed = random();
        world.ranks().each([&](int rank) {
          const auto& calls = program[static_cast<size_t>(rank)];
          judge(program, rank, play(world[rank], calls, seed + static_cast<unsigned>(rank)));
        });
      }
    }
  }
}
