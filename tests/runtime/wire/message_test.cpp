#include "runtime/wire/message.h"

#include <doctest/doctest.h>

#include "runtime/stall/stall_report.h"

using namespace hvd::runtime;
using hvd::ByteWriter;

namespace {

Request example_request() {
  Request request;
  request.op = HVD_ALLGATHER;
  request.prescale = 0.5;
  request.tensors = {{HVD_FLOAT32, {2, 3}}, {HVD_INT64, {}}};
  request.splits = {1, 2};
  return request;
}

template <typename T>
void check_every_cut_is_refused(hvd::ByteView whole) {
  for (size_t size = 0; size < whole.size(); ++size) {
    T value;
    CHECK(!decode(whole.first(size), &value).ok());
  }
}

}  // namespace

TEST_CASE("an announcement arrives as it was sent, and no part of it alone") {
  const Announcement sent{
      3,   9, {1, 7}, {{"w", 2, {{0, example_request()}, {4, Request{}}}, {{0, {5, 1}}, {2, {}}}}},
      {4}, {}};
  ByteWriter out;
  encode(sent, out);
  Announcement got;
  REQUIRE(decode(out.view(), &got).ok());
  CHECK(got == sent);
  check_every_cut_is_refused<Announcement>(out.view());
  out.put('x');
  CHECK(!decode(out.view(), &got).ok());
}

TEST_CASE("a plan arrives as it was sent, and no part of it alone") {
  Plan sent;
  sent.sequence = 1ULL << 40;
  sent.last = true;
  sent.forgotten = {6, 2};
  sent.items.push_back({9, false, {}, {}, {}, HVD_OK, {}});
  sent.items.push_back({10, true, "name", example_request(), {{0, {2, 1}}}, HVD_OK, {}});
  sent.items.push_back({0, true, "bad", Request{}, {}, HVD_INVALID_ARGUMENT, "a sentence"});
  sent.batches = {{{0, HVD_FLOAT32}}, {{1, HVD_FLOAT32}, {1, HVD_INT64}}};
  ByteWriter out;
  encode(sent, out);
  Plan got;
  REQUIRE(decode(out.view(), &got).ok());
  CHECK(got == sent);
  check_every_cut_is_refused<Plan>(out.view());
}

TEST_CASE("eager data lies aligned at the end of each message that has some") {
  const hvd::Bytes data(40, std::byte{5});
  for (size_t ids = 0; ids < 5; ++ids) {
    const TentativePlan sent{1, 2, 3, std::vector<uint32_t>(ids, 9), {data}};
    ByteWriter out;
    encode(sent, out);
    TentativePlan got;
    REQUIRE(decode(out.view(), &got).ok());
    CHECK(got == sent);
    CHECK((got.eager_data.bytes.data() - out.view().data()) % 16 == 0);
    check_every_cut_is_refused<TentativePlan>(out.view());
    ByteWriter head;
    encode_head(sent, head);
    CHECK(head.size() + data.size() == out.size());

    Announcement announcement;
    announcement.ids = sent.ids;
    announcement.eager_data = {data};
    out.clear();
    encode(announcement, out);
    Announcement heard;
    REQUIRE(decode(out.view(), &heard).ok());
    CHECK(heard == announcement);
    CHECK((heard.eager_data.bytes.data() - out.view().data()) % 16 == 0);
  }
}

TEST_CASE("a plan of several batches has no eager data") {
  const hvd::Bytes data(8);
  Plan sent;
  sent.items.push_back({9, false, {}, {}, {}, HVD_OK, {}});
  sent.eager_data = {data};
  for (int batches = 0; batches < 3; ++batches) {
    ByteWriter out;
    encode(sent, out);
    Plan got;
    CHECK(decode(out.view(), &got).ok() == (batches == 1));
    sent.batches.push_back({{0, HVD_FLOAT32}});
  }
}

TEST_CASE("decoding again into the same value leaves nothing of the first") {
  ByteWriter first;
  encode(Announcement{0, 0, {1, 2, 3}, {{"w", 1, {{0, example_request()}}, {}}}, {5}, {}}, first);
  ByteWriter second;
  const Announcement sent{0, 0, {4}, {}, {}, {}};
  encode(sent, second);
  Announcement got;
  REQUIRE(decode(first.view(), &got).ok());
  REQUIRE(decode(second.view(), &got).ok());
  CHECK(got == sent);

  Plan full;
  full.items.push_back({4, true, "w", example_request(), {{0, {2}}}, HVD_INVALID_ARGUMENT, "no"});
  full.items[0].request.op = kRemoveProcessSet;
  Plan brief;
  brief.items.push_back({4, false, {}, {}, {}, HVD_OK, {}});
  Plan plan;
  for (const Plan& one : {full, brief, full}) {
    ByteWriter out;
    encode(one, out);
    REQUIRE(decode(out.view(), &plan).ok());
    CHECK(plan == one);
  }
}

TEST_CASE("a notice arrives as it was sent") {
  const Notice sent{5, HVD_ABORTED, "rank 5 is gone", 4};
  ByteWriter out;
  encode(MessageKind::kAbort, sent, out);
  MessageKind kind{};
  REQUIRE(peek_kind(out.view(), &kind).ok());
  CHECK(kind == MessageKind::kAbort);
  Notice got;
  REQUIRE(decode(out.view(), &got).ok());
  CHECK(got == sent);
  check_every_cut_is_refused<Notice>(out.view());
}

TEST_CASE("a message of a service arrives as it was sent") {
  ByteWriter out;
  encode(MessageKind::kToRoot, {2, 7, hvd::as_bytes("late")}, out);
  MessageKind kind{};
  REQUIRE(peek_kind(out.view(), &kind).ok());
  CHECK(kind == MessageKind::kToRoot);
  ServiceMessage got;
  REQUIRE(decode(out.view(), &got).ok());
  CHECK(got.service == 2);
  CHECK(got.rank == 7);
  CHECK(hvd::as_text(got.content) == "late");
  check_every_cut_is_refused<ServiceMessage>(out.view());
}

TEST_CASE("messages about stalls arrive as they were sent") {
  ByteWriter out;
  encode(StallWaiting{{{{3, "w"}, HVD_ALLREDUCE, 61.5}}}, out);
  StallWaiting waiting;
  REQUIRE(decode(out.view(), &waiting).ok());
  REQUIRE(waiting.entries.size() == 1);
  CHECK(waiting.entries[0].name == StallName{3, "w"});
  CHECK(waiting.entries[0].seconds == 61.5);
  check_every_cut_is_refused<StallWaiting>(out.view());
  out.clear();
  encode(StallAsk{7, {{0, "w"}}}, out);
  StallAsk ask;
  REQUIRE(decode(out.view(), &ask).ok());
  CHECK(ask.names == std::vector<StallName>{{0, "w"}});
  check_every_cut_is_refused<StallAsk>(out.view());
  out.clear();
  encode(
      StallAnswer{
          7, {StallState::kMissing}, "v", HVD_BARRIER, 2, "program", "stack", "note", "train.py:8"},
      out);
  StallAnswer answer;
  REQUIRE(decode(out.view(), &answer).ok());
  CHECK(answer.last_name == "v");
  CHECK(answer.last_program == "program");
  CHECK(answer.stack == "stack");
  CHECK(answer.note == "note");
  check_every_cut_is_refused<StallAnswer>(out.view());
  out.clear();
  encode(StallAnswer{7, {static_cast<StallState>(9)}, "", 0, 0, "", "", "", ""}, out);
  CHECK(!decode(out.view(), &answer).ok());
}

TEST_CASE("impossible content is refused") {
  MessageKind kind{};
  CHECK(!peek_kind({}, &kind).ok());
  ByteWriter unknown;
  unknown.put(uint8_t{99});
  CHECK(!peek_kind(unknown.view(), &kind).ok());

  const auto refused = [](const Request& request) {
    ByteWriter out;
    encode(Announcement{0, 0, {}, {{"w", 1, {{0, request}}, {}}}, {}, {}}, out);
    Announcement got;
    return !decode(out.view(), &got).ok();
  };
  Request negative = example_request();
  negative.tensors[0].shape[0] = -1;
  CHECK(refused(negative));
  Request huge = example_request();
  huge.tensors[0].shape = {INT64_MAX, 4};
  CHECK(refused(huge));
  Request dtype = example_request();
  dtype.tensors[0].dtype = 77;
  CHECK(refused(dtype));

  Plan outside;
  outside.batches = {{{3, HVD_FLOAT32}}};
  ByteWriter out;
  encode(outside, out);
  Plan got;
  CHECK(!decode(out.view(), &got).ok());
}
