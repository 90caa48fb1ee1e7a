#include "launcher/protocol/resumable_stream.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "base/text.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

const SessionKey kKey{std::byte{7}};
const Nonce kLaunchers{std::byte{1}}, kAgents{std::byte{2}};

// Gives `record` to the receiver in pieces of `piece` bytes. Returns the bytes of the stream.
std::string deliver(ResumableStream& to, Bytes record, size_t piece = 1 << 20) {
  std::string text;
  for (std::span<std::byte> left(record); !left.empty();) {
    const auto part = left.first(std::min(piece, left.size()));
    left = left.subspan(part.size());
    const auto size = to.receive(part);
    REQUIRE_MESSAGE(size.ok(), size.status().message());
    text += as_text(ByteView(part).first(*size));
  }
  return text;
}

// Delivers all pending records of `from`.
std::string deliver_all(ResumableStream& from, ResumableStream& to, size_t piece = 1 << 20) {
  std::string text;
  for (Bytes record = from.take(); !record.empty(); record = from.take()) {
    text += deliver(to, std::move(record), piece);
  }
  return text;
}

void reconnect(ResumableStream& launcher, ResumableStream& agent) {
  const Resume offer = agent.offer(kLaunchers, kAgents);
  const auto answer = launcher.answer(offer, kLaunchers);
  REQUIRE_MESSAGE(answer.ok(), answer.status().message());
  const Status status = agent.confirm(offer, kLaunchers, *answer);
  REQUIRE_MESSAGE(status.ok(), status.message());
}

std::string error_of(ResumableStream& stream, std::string_view text) {
  Bytes bytes = to_bytes(text);
  return stream.receive(bytes).status().message();
}

}  // namespace

TEST_CASE("Bytes arrive in order, in whatever pieces the connection brings them") {
  for (const size_t piece : {size_t{1}, size_t{5}, size_t{12}, size_t{13}, size_t{1000}}) {
    ResumableStream launcher(kKey), agent(kKey);
    launcher.put(as_bytes("one "));
    CHECK(launcher.has_unsent());
    std::string text = deliver_all(launcher, agent, piece);
    CHECK_FALSE(launcher.has_unsent());
    launcher.put(as_bytes("two "));
    launcher.put(as_bytes("three"));
    text += deliver_all(launcher, agent, piece);
    CHECK(text == "one two three");
    CHECK_FALSE(agent.has_ended());
  }
}

TEST_CASE("A large write travels in several records") {
  ResumableStream launcher(kKey), agent(kKey);
  const std::string text(3 * ResumableStream::kMostInRecord / 2, 'x');
  launcher.put(as_bytes(text));
  const Bytes first = launcher.take();
  CHECK(first.size() == ResumableStream::kRecordHeader + ResumableStream::kMostInRecord);
  CHECK(deliver(agent, first) + deliver_all(launcher, agent, 1000) == text);
}

TEST_CASE("Bytes that are not acknowledged are kept, up to the limit") {
  ResumableStream launcher(kKey), agent(kKey);
  CHECK(launcher.room() == ResumableStream::kMostKept);
  launcher.put(Bytes(ResumableStream::kMostKept));
  CHECK(launcher.room() == 0);
  deliver_all(launcher, agent);
  CHECK(launcher.room() == 0);
  CHECK_FALSE(launcher.is_acknowledged());
  // The agent has nothing to send, and acknowledges nevertheless.
  deliver_all(agent, launcher);
  CHECK(launcher.room() == ResumableStream::kMostKept);
  CHECK(launcher.is_acknowledged());
}

TEST_CASE("A few bytes are acknowledged by the next record, and need none of their own") {
  ResumableStream launcher(kKey), agent(kKey);
  launcher.put(as_bytes("ping"));
  deliver_all(launcher, agent);
  CHECK(agent.take().empty());
  agent.put(as_bytes("pong"));
  deliver_all(agent, launcher);
  CHECK(launcher.is_acknowledged());
}

TEST_CASE("Bytes that a cut connection has lost are sent again, and none twice") {
  ResumableStream launcher(kKey), agent(kKey);
  launcher.put(as_bytes("arrives, "));
  agent.put(as_bytes("up, "));
  CHECK(deliver_all(agent, launcher) == "up, ");
  std::string text = deliver_all(launcher, agent);
  launcher.put(as_bytes("is cut in the middle, "));
  Bytes cut = launcher.take();
  cut.resize(ResumableStream::kRecordHeader + 6);
  text += deliver(agent, cut);
  CHECK(text == "arrives, is cut");
  launcher.put(as_bytes("is lost, "));
  CHECK_FALSE(launcher.take().empty());
  launcher.put(as_bytes("waits"));

  reconnect(launcher, agent);
  CHECK_FALSE(agent.has_unsent());
  text += deliver_all(launcher, agent, 7);
  CHECK(text == "arrives, is cut in the middle, is lost, waits");
}

TEST_CASE("A cut within a record's header leaves nothing of it behind") {
  ResumableStream launcher(kKey), agent(kKey);
  launcher.put(as_bytes("text"));
  Bytes cut = launcher.take();
  cut.resize(ResumableStream::kRecordHeader - 1);
  CHECK(deliver(agent, cut).empty());
  reconnect(launcher, agent);
  CHECK(deliver_all(launcher, agent) == "text");
}

TEST_CASE("The end comes behind the last byte, and again after a cut") {
  ResumableStream launcher(kKey), agent(kKey);
  agent.put(as_bytes("last words"));
  agent.end();
  CHECK_FALSE(agent.take().empty());  // these bytes are lost
  CHECK_FALSE(agent.has_unsent());
  reconnect(launcher, agent);
  const Bytes record = agent.take();
  CHECK(deliver(launcher, Bytes(record.begin(), record.end() - 1)) == "last word");
  CHECK_FALSE(launcher.has_ended());
  CHECK(deliver(launcher, Bytes(record.end() - 1, record.end())) == "s");
  CHECK(launcher.has_ended());
  CHECK(error_of(launcher, "x") == "the far side sent bytes after the end of the link");
}

TEST_CASE("Another key, another nonce, another count and another session are refused") {
  ResumableStream launcher(kKey), agent(kKey), other(SessionKey{std::byte{8}});
  agent.put(as_bytes("text"));
  deliver_all(agent, launcher);
  Resume offer = agent.offer(kLaunchers, kAgents);
  CHECK_FALSE(launcher.answer(other.offer(kLaunchers, kAgents), kLaunchers).ok());
  CHECK_FALSE(launcher.answer(offer, kAgents).ok());
  Resume altered = offer;
  altered.received += 1;
  CHECK_FALSE(launcher.answer(altered, kLaunchers).ok());
  altered = offer;
  altered.session = other.id();
  CHECK_FALSE(launcher.answer(altered, kLaunchers).ok());

  auto answer = launcher.answer(offer, kLaunchers);
  REQUIRE(answer.ok());
  CHECK_FALSE(agent.confirm(offer, kAgents, *answer).ok());
  answer->received += 1;
  CHECK_FALSE(agent.confirm(offer, kLaunchers, *answer).ok());
  // The proof of one side is not valid for the other side.
  CHECK_FALSE(agent.confirm(offer, kLaunchers, {offer.received, offer.proof}).ok());
}

TEST_CASE("A count of bytes that were not sent is refused") {
  ResumableStream launcher(kKey), agent(kKey), ahead(kKey), sender(kKey);
  sender.put(as_bytes("text"));
  deliver_all(sender, ahead);
  const auto answer = launcher.answer(ahead.offer(kLaunchers, kAgents), kLaunchers);
  CHECK(answer.status().message() == "the far side counts other bytes of the link than this side");
  ahead.put(as_bytes("x"));
  Bytes record = ahead.take();
  CHECK(agent.receive(record).status().message() ==
        "the far side acknowledges bytes of the link that it was not sent");
}

TEST_CASE("Bytes that are no record are an error, which shows the text of a shell") {
  ResumableStream launcher(kKey);
  CHECK(error_of(launcher, "Welcome to host b!\r\n") ==
        "the far side is not a horovod agent: it began with 'Welcome to host b!'");
  ResumableStream later(kKey), agent(kKey);
  agent.put(as_bytes("text"));
  deliver_all(agent, later);
  CHECK(error_of(later, "Connection to host b closed.") ==
        "unexpected bytes between two records on the link");
}

TEST_CASE("Ten thousand cuts at random places lose and repeat nothing") {
  std::mt19937 random(1);
  const auto below = [&](size_t limit) { return random() % limit; };
  ResumableStream ends[2] = {ResumableStream(kKey), ResumableStream(kKey)};
  std::string put[2], arrived[2];
  size_t compared[2] = {};
  for (int round = 0; round < 10000; ++round) {
    for (int steps = static_cast<int>(below(4)); steps > 0; --steps) {
      const size_t from = below(2), to = 1 - from;
      std::string text(below(round % 100 == 0 ? 200000 : 300), '\0');
      for (char& each : text) each = static_cast<char>(random());
      text.resize(std::min(text.size(), ends[from].room()));
      ends[from].put(as_bytes(text));
      put[from] += text;
      Bytes record = ends[from].take();
      const bool is_cut = below(3) == 0;  // the last record of this connection, or a part of it
      if (is_cut) record.resize(below(record.size() + 1));
      arrived[from] += deliver(ends[to], std::move(record), 1 + below(70000));
      if (is_cut) break;
    }
    reconnect(ends[0], ends[1]);
    for (const size_t from : {0, 1}) {
      const size_t count = arrived[from].size() - compared[from];
      CHECK(put[from].compare(compared[from], count, arrived[from], compared[from], count) == 0);
      compared[from] += count;
      if (put[from].size() < (8u << 20)) continue;
      arrived[from] += deliver_all(ends[from], ends[1 - from]);
      CHECK(put[from] == arrived[from]);
      put[from].clear();
      arrived[from].clear();
      compared[from] = 0;
    }
  }
  for (const size_t from : {0, 1}) {
    arrived[from] += deliver_all(ends[from], ends[1 - from]);
    CHECK(put[from] == arrived[from]);
  }
}
