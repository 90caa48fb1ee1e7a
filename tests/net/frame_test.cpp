#include "net/frame.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "base/text.h"

using namespace hvd;
using namespace hvd::net;

namespace {

Bytes written(const FrameHeader& header, std::string_view payload) {
  FrameWriter writer;
  writer.put(header, as_bytes(payload), Urgency::kControl);
  return writer.take(1);
}

std::string complaint(FrameParser& parser) {
  auto frame = parser.next();
  return frame.ok() ? "" : frame.error().message();
}

}  // namespace

TEST_CASE("A frame arrives as it was sent, however it is cut") {
  const FrameHeader sent{.type = FrameType::kData,
                         .job = 0x0123456789abcdef,
                         .generation = 4,
                         .host = 5,
                         .stream = 6,
                         .credit = 7};
  const Bytes bytes = written(sent, "payload");
  CHECK(bytes.size() == kFrameHeaderSize + 7);
  FrameParser parser;
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto none = parser.next();
    REQUIRE(none.ok());
    CHECK_FALSE(none->has_value());
    parser.feed(ByteView(bytes).subspan(i, 1));
  }
  auto frame = parser.next();
  REQUIRE(frame.ok());
  REQUIRE(frame->has_value());
  const FrameHeader& header = (*frame)->header;
  CHECK(header.type == FrameType::kData);
  CHECK(header.job == sent.job);
  CHECK(header.generation == 4);
  CHECK(header.host == 5);
  CHECK(header.stream == 6);
  CHECK(header.credit == 7);
  CHECK(as_text((*frame)->payload) == "payload");
}

TEST_CASE("Many frames in one piece come out one by one and leave no memory behind") {
  FrameWriter writer;
  for (int i = 0; i < 1000; ++i) writer.put({}, as_bytes(cat("number ", i)), Urgency::kControl);
  const Bytes bytes = writer.take(SIZE_MAX);
  CHECK(writer.empty());
  FrameParser parser;
  int seen = 0;
  for (size_t at = 0; at < bytes.size(); at += 777) {
    parser.feed(ByteView(bytes).subspan(at, std::min<size_t>(777, bytes.size() - at)));
    for (;;) {
      auto frame = parser.next();
      REQUIRE(frame.ok());
      if (!frame->has_value()) break;
      CHECK(as_text((*frame)->payload) == cat("number ", seen));
      ++seen;
    }
  }
  CHECK(seen == 1000);
}

TEST_CASE("The error names the output of a shell's start files") {
  FrameParser parser;
  parser.feed(as_bytes("Welcome to host b!\n"));
  CHECK(complaint(parser) ==
        "the far side is not a horovod agent: it began with 'Welcome to host b!'");
  parser.feed(written({}, "a frame"));
  CHECK(complaint(parser) != "");
}

TEST_CASE("A frame of another version names both versions") {
  Bytes bytes = written({}, "x");
  bytes[4] = std::byte{9};
  FrameParser parser;
  parser.feed(bytes);
  const std::string sentence = complaint(parser);
  CHECK(sentence.find("version 9") != std::string::npos);
  CHECK(sentence.find("version 1") != std::string::npos);
}

TEST_CASE("A frame that is too large is refused before it arrives") {
  const Bytes bytes = written({}, std::string(1000, 'x'));
  FrameParser parser(999);
  parser.feed(ByteView(bytes).first(kFrameHeaderSize));
  CHECK(complaint(parser).find("1000 bytes") != std::string::npos);
}

TEST_CASE("A frame of an unknown type is refused") {
  Bytes bytes = written({}, "x");
  bytes[6] = std::byte{99};
  FrameParser parser;
  parser.feed(bytes);
  CHECK(complaint(parser).find("unknown type 99") != std::string::npos);
}

TEST_CASE("Bytes between two frames are an error, and not said to be another program") {
  FrameParser parser;
  parser.feed(written({}, "first"));
  parser.feed(as_bytes("noise"));
  CHECK(parser.next().value().has_value());
  CHECK(complaint(parser) == "unexpected bytes between two frames on the link");
}

TEST_CASE("Control overtakes the store, and the store overtakes output") {
  FrameWriter writer;
  writer.put({.stream = 1}, as_bytes("output"), Urgency::kOutput);
  writer.put({.stream = 2}, as_bytes("store"), Urgency::kStore);
  writer.put({.stream = 3}, as_bytes("control"), Urgency::kControl);
  writer.put({.stream = 4}, as_bytes("control"), Urgency::kControl);
  std::string order;
  while (!writer.empty()) {
    FrameParser parser;
    parser.feed(writer.take(1));
    order += cat((*parser.next())->header.stream);
  }
  CHECK(order == "3421");
}

TEST_CASE("A batch holds whole frames and stops when it is large enough") {
  FrameWriter writer;
  for (int i = 0; i < 10; ++i) {
    writer.put({}, Bytes(1000 - kFrameHeaderSize), Urgency::kOutput);
  }
  CHECK(writer.queued() == 10000);
  CHECK(writer.take(2500).size() == 3000);
  CHECK(writer.queued() == 7000);
}

TEST_CASE("Credit is what was granted and not used") {
  Credit credit(10);
  credit.use(4);
  CHECK(credit.left() == 6);
  CHECK(credit.grant(10));
  CHECK(credit.left() == 16);
  CHECK_FALSE(credit.grant(0xffffffff));
}

TEST_CASE("A window grants in halves, only what was consumed, and notices who sends too much") {
  Window window(100);
  CHECK(window.arrived(100));
  CHECK_FALSE(window.arrived(1));
  CHECK(window.consumed(49) == 0);
  CHECK(window.consumed(1) == 50);
  CHECK(window.consumed(1000) == 50);  // at most as many as have arrived
  CHECK(window.consumed(1000) == 0);
  CHECK(window.arrived(100));
  CHECK_FALSE(window.arrived(1));
}
