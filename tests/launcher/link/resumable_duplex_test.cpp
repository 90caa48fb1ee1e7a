// The launcher's end of a link whose connection changes. The test plays the agent.
#include "launcher/link/resumable_duplex.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>

#include "base/text.h"
#include "launcher/protocol/resumable_stream.h"
#include "net/frame.h"
#include "net/notification.h"
#include "tests/launcher/spawn/on_loop.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

namespace asio = net::asio;

// A connection in memory: the launcher's output, and its next input.
struct Wire {
  explicit Wire(const asio::any_io_executor& executor) : changed(executor) {}
  Bytes written, unread;
  bool is_broken = false, is_closed = false;
  net::Notification changed;
};

class WireDuplex : public Duplex {
 public:
  explicit WireDuplex(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) {}
  ~WireDuplex() override { close(); }

  net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) override {
    const auto wire = wire_;
    while (wire->unread.empty() && !wire->is_broken && !wire->is_closed) {
      co_await wire->changed.wait();
    }
    if (wire->is_closed) co_return aborted("the stream was closed");
    if (wire->unread.empty()) co_return unavailable("connection reset");
    const size_t size = std::min(buffer.size(), wire->unread.size());
    std::copy_n(wire->unread.begin(), size, buffer.begin());
    wire->unread.erase(wire->unread.begin(), wire->unread.begin() + static_cast<ptrdiff_t>(size));
    co_return size;
  }
  net::Task<Status> write(ByteView bytes) override {
    if (wire_->is_broken || wire_->is_closed) co_return unavailable("connection reset");
    wire_->written.insert(wire_->written.end(), bytes.begin(), bytes.end());
    co_return Status();
  }
  void close() final {
    wire_->is_closed = true;
    wire_->changed.notify();
  }
  std::string last_words() const override { return "last words"; }

 private:
  std::shared_ptr<Wire> wire_;
};

constexpr bool kByLauncher = false;

class Link {
 public:
  explicit Link(double seconds = 60, bool is_by_agent = true, double silence_seconds = 15) {
    Reconnection reconnection{.is_by_agent = is_by_agent, .agent_wait_seconds = 5};
    if (!is_by_agent) reconnection.respawn = [this](bool) { return respawn(); };
    stream_ =
        std::make_unique<ResumableDuplex>(loop_.get_executor(), connect(), std::move(reconnection));
    stream_->survive(seconds, silence_seconds);
    settle();
    agent_.emplace(std::get<OpenSession>(take_message(*wires_[0])).key);
  }
  ~Link() {
    stream_.reset();
    settle();
  }

  std::unique_ptr<Duplex> connect() {
    wires_.push_back(std::make_shared<Wire>(loop_.get_executor()));
    return std::make_unique<WireDuplex>(wires_.back());
  }
  Wire& wire(size_t index) { return *wires_[index]; }
  size_t wires() const { return wires_.size(); }
  ResumableStream& agent() { return *agent_; }
  ResumableDuplex& stream() { return *stream_; }

  // Runs all ready handlers.
  void settle() {
    loop_.restart();
    loop_.poll();
  }
  void write(std::string_view text) {
    asio::co_spawn(loop_, keep(stream_.get(), std::string(text)), asio::detached);
    settle();
  }
  void pass(std::chrono::milliseconds time) {
    loop_.restart();
    loop_.run_for(time);
  }
  // Begins to read into `received`.
  void listen() {
    asio::co_spawn(loop_, store_result(next(*stream_), received), asio::detached);
    settle();
  }
  std::optional<std::string> received;
  // Returns the text or the error that the launcher reads next.
  std::string read() { return run_on(loop_, next(*stream_)); }

  // Returns the first frame that the launcher has written to a connection.
  Message take_message(Wire& wire) {
    net::FrameParser parser;
    for (size_t size = 1; size <= wire.written.size(); ++size) {
      parser.feed(ByteView(wire.written).subspan(size - 1, 1));
      const auto frame = parser.next();
      REQUIRE(frame.ok());
      if (!frame->has_value()) continue;
      const auto message = decode((*frame)->payload);
      REQUIRE(message.ok());
      wire.written.erase(wire.written.begin(), wire.written.begin() + static_cast<ptrdiff_t>(size));
      return *message;
    }
    FAIL("no frame was written");
    return Ping{};
  }
  // Returns the text that the agent gets over this connection.
  std::string take_text(Wire& wire) {
    const auto size = agent_->receive(wire.written);
    REQUIRE_MESSAGE(size.ok(), size.status().message());
    const std::string text(as_text(ByteView(wire.written).first(*size)));
    wire.written.clear();
    return text;
  }
  // Sends text from the agent over this connection.
  void send(Wire& wire, std::string_view text) {
    agent_->put(as_bytes(text));
    const Bytes record = agent_->take();
    wire.unread.insert(wire.unread.end(), record.begin(), record.end());
    wire.changed.notify();
  }

  // Answers on this connection as the agent or its new process.
  void answer(Wire& wire, const Message& message) {
    net::FrameWriter writer;
    writer.put({}, encode(message), net::Urgency::kControl);
    const Bytes frame = writer.take(1);
    wire.unread.insert(wire.unread.end(), frame.begin(), frame.end());
    wire.changed.notify();
    settle();
  }

  Status resume(Resume offer) {
    auto connection = connect();
    return run_on(
        loop_, ResumableDuplex::resume(stream_->running().lock(), connection, offer, kChallenge));
  }
  // Resumes as the agent over another connection.
  Wire& resume() {
    const Resume offer = agent_->offer(kChallenge, kAgents);
    const Status status = resume(offer);
    REQUIRE_MESSAGE(status.ok(), status.message());
    Wire& wire = *wires_.back();
    const auto answer = std::get<Resumed>(take_message(wire));
    REQUIRE(agent_->confirm(offer, kChallenge, answer).ok());
    settle();
    return wire;
  }

  static constexpr Nonce kChallenge{std::byte{1}}, kAgents{std::byte{2}};

  // respawn() yields no connection between the two.
  void hold_back() { is_held_back_ = true; }
  void let_go() {
    is_held_back_ = false;
    let_go_.notify();
    settle();
  }

 private:
  net::Task<Result<std::unique_ptr<Duplex>>> respawn() {
    while (is_held_back_) co_await let_go_.wait();
    co_return connect();
  }
  static net::Task<void> keep(ResumableDuplex* stream, std::string text) {
    const Status status = co_await stream->write(as_bytes(text));
    CHECK_MESSAGE(status.ok(), status.message());
  }
  static net::Task<std::string> next(ResumableDuplex& stream) {
    std::array<std::byte, 1000> buffer;
    const auto size = co_await stream.read_some(buffer);
    if (!size.ok()) co_return size.status().message();
    co_return std::string(as_text(ByteView(buffer).first(*size)));
  }

  asio::io_context loop_{1};
  net::Notification let_go_{loop_.get_executor()};
  bool is_held_back_ = false;
  std::vector<std::shared_ptr<Wire>> wires_;
  std::unique_ptr<ResumableDuplex> stream_;
  std::optional<ResumableStream> agent_;
};

}  // namespace

TEST_CASE("A launcher's stream continues over another connection") {
  Link link;
  link.write("one, ");
  CHECK(link.take_text(link.wire(0)) == "one, ");
  link.wire(0).is_broken = true;
  link.wire(0).changed.notify();
  link.write("two");
  Wire& second = link.resume();
  CHECK(link.take_text(second) == "two");
  link.send(second, "three");
  CHECK(link.read() == "three");
}

TEST_CASE("The newest connection wins, also over one that seems to work") {
  Link link;
  link.write("one");  // lost in transit
  link.send(link.wire(0), "two");
  Wire& second = link.resume();
  CHECK(link.wire(0).is_closed);
  CHECK(link.take_text(second) == "one");
  Bytes again = link.agent().take();
  second.unread.insert(second.unread.end(), again.begin(), again.end());
  CHECK(link.read() == "two");
  Wire& third = link.resume();
  CHECK(second.is_closed);
  link.send(third, "three");
  CHECK(link.read() == "three");
}

TEST_CASE("A connection of another session replaces none") {
  Link link;
  ResumableStream other(SessionKey{std::byte{9}});
  const Status status = link.resume(other.offer(Link::kChallenge, Link::kAgents));
  CHECK(status.code() == Code::kPermissionDenied);
  CHECK_FALSE(link.wire(0).is_closed);
  // An offer for another challenge does not replace the connection either.
  CHECK_FALSE(link.resume(link.agent().offer(Link::kAgents, Link::kAgents)).ok());
  link.send(link.wire(0), "text");
  CHECK(link.read() == "text");
}

TEST_CASE("A stream that must not survive ends with its connection") {
  Link link(0);
  link.wire(0).is_broken = true;
  CHECK(link.read() == "connection reset");
  CHECK(link.stream().last_words() == "last words");
  CHECK_FALSE(link.resume(link.agent().offer(Link::kChallenge, Link::kAgents)).ok());
}

TEST_CASE("A stream that no connection resumes ends with a sentence") {
  Link link(0.05);
  link.wire(0).is_broken = true;
  CHECK(link.read() == "connection reset, and the link did not resume within 0.05 s");
}

TEST_CASE("A connection that breaks after a silence is awaited while the launcher pings the host") {
  Link link(0.05);
  link.stream().on_silence(5);
  link.listen();
  link.wire(0).is_broken = true;
  link.wire(0).changed.notify();
  link.pass(std::chrono::milliseconds(100));
  CHECK_FALSE(link.received);
  link.send(link.resume(), "text");
  link.settle();
  CHECK(link.received == "text");
}

TEST_CASE("A silent connection is used until another one is there") {
  Link link(10, kByLauncher);
  link.stream().on_silence(4);
  link.settle();
  CHECK(link.wires() == 1);
  link.write("one");  // lost in transit
  link.stream().on_silence(5);
  link.stream().on_silence(6);
  link.settle();
  REQUIRE(link.wires() == 2);
  CHECK_FALSE(link.wire(0).is_closed);
  const auto order = std::get<Reattach>(link.take_message(link.wire(1)));
  const Resume offer = link.agent().offer(order.nonce, Link::kAgents);
  link.answer(link.wire(1), offer);
  CHECK(link.wire(0).is_closed);
  const auto answer = std::get<Resumed>(link.take_message(link.wire(1)));
  REQUIRE(link.agent().confirm(offer, order.nonce, answer).ok());
  CHECK(link.take_text(link.wire(1)) == "one");
  // The silence of the old connection does not count for the new one.
  link.stream().on_silence(7);
  link.settle();
  CHECK(link.wires() == 2);
  link.send(link.wire(1), "two");
  CHECK(link.read() == "two");
}

TEST_CASE("A silent connection of an agent that dials is closed, and the agent opens another one") {
  Link link(10);
  link.stream().on_silence(4);
  CHECK_FALSE(link.wire(0).is_closed);
  link.stream().on_silence(5);
  CHECK(link.wire(0).is_closed);
  link.send(link.resume(), "text");
  CHECK(link.read() == "text");
}

TEST_CASE("A silent connection is replaced before its host is given up") {
  Link link(45, true, 3);
  link.stream().on_silence(1);
  CHECK_FALSE(link.wire(0).is_closed);
  link.stream().on_silence(2);
  CHECK(link.wire(0).is_closed);
  link.send(link.resume(), "text");
  CHECK(link.read() == "text");
}

TEST_CASE("A silent connection is used although a new process finds no agent") {
  Link link(10, kByLauncher);
  link.stream().on_silence(5);
  link.settle();
  REQUIRE(link.wires() == 2);
  link.answer(link.wire(1), Failed{"the agent there has ended"});
  CHECK_FALSE(link.wire(0).is_closed);
  link.send(link.wire(0), "text");
  CHECK(link.read() == "text");
}

TEST_CASE("A connection that is silent for a while is used again") {
  Link link(10, kByLauncher);
  link.hold_back();
  link.stream().on_silence(5);
  link.settle();
  link.send(link.wire(0), "late");
  CHECK(link.read() == "late");
  link.let_go();
  REQUIRE(link.wires() == 2);
  CHECK(link.wire(1).is_closed);
  CHECK_FALSE(link.wire(0).is_closed);
  link.send(link.wire(0), "text");
  CHECK(link.read() == "text");
}

TEST_CASE("A stream that is closed ends the attempt to replace a silent connection") {
  Link link(10, kByLauncher);
  link.stream().on_silence(5);
  link.settle();
  REQUIRE(link.wires() == 2);
  link.stream().close();
  link.settle();
  CHECK(link.wire(1).is_closed);
}

TEST_CASE("A stream that is closed tells the agent to expect no other connection") {
  Link link;
  link.stream().close();
  link.settle();
  CHECK(link.take_text(link.wire(0)).empty());
  CHECK(link.agent().has_ended());
  CHECK(link.wire(0).is_closed);
}
