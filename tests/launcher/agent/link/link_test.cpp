// The launcher's end of a link against an agent that follows a script.
#include <doctest/doctest.h>

#include <csignal>
#include <deque>

#include "base/clock.h"
#include "horovod/version.h"
#include "launcher/link/agent_link.h"
#include "net/frame.h"
#include "net/notification.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

namespace asio = net::asio;

// Sends its hello, and after each write of the launcher the next part of the script, in one piece.
class ScriptedAgent : public Duplex {
 public:
  ScriptedAgent(const asio::any_io_executor& executor, std::deque<std::vector<Message>> script)
      : sent_(executor), script_(std::move(script)) {
    AgentHello hello;
    hello.version = HVD_VERSION;
    send_all({hello});
  }

  net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) override {
    while (pieces_.empty() && !is_closed_) co_await sent_.wait();
    if (is_closed_) co_return size_t{0};
    const Bytes piece = std::move(pieces_.front());
    pieces_.pop_front();
    REQUIRE(piece.size() <= buffer.size());
    std::copy(piece.begin(), piece.end(), buffer.begin());
    co_return piece.size();
  }

  net::Task<Status> write(ByteView) override {
    if (!script_.empty()) {
      send_all(script_.front());
      script_.pop_front();
    }
    co_return Status();
  }

  void close() override {
    is_closed_ = true;
    sent_.notify();
  }

  std::string last_words() const override { return {}; }

 private:
  void send_all(const std::vector<Message>& messages) {
    net::FrameWriter writer;
    for (const Message& message : messages) {
      writer.put({}, encode(message), net::Urgency::kControl);
    }
    pieces_.push_back(writer.take(1 << 20));
    sent_.notify();
  }

  net::Notification sent_;
  std::deque<std::vector<Message>> script_;
  std::deque<Bytes> pieces_;
  bool is_closed_ = false;
};

struct Events : AgentEvents {
  void on_output(int, OutputStream, ByteView) override {}
  void on_output_end(int, OutputStream) override {}
  void on_report(const AgentReport& report) override {
    if (const auto* exited = std::get_if<Exited>(&report)) exits.push_back(exited->exit);
    if (std::holds_alternative<Finished>(report)) is_finished = true;
  }
  void on_lost(const Status& why) override { lost.push_back(why.message()); }
  void on_store_connection(net::StreamSocket) override {}

  std::vector<RankExit> exits;
  bool is_finished = false;
  std::vector<std::string> lost;
};

// The results of prepare and start, the state between them, and the events of the link.
struct Outcome {
  Status prepared, state, held, started;
  Events events;
};

net::Task<void> begin(AgentLink& link, Outcome& outcome, bool is_held) {
  HostJob job;
  job.ranks.push_back({0, {}});
  job.lease_seconds = 0;
  AgentLink::NextPart no_code;
  outcome.prepared = co_await link.prepare(job, no_code);
  // The launcher waits 50 ms for other hosts.
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  asio::steady_timer others(executor, std::chrono::milliseconds(50));
  co_await others.async_wait(net::use_tuple);
  outcome.state = link.loss();
  if (is_held) {
    outcome.held = link.hold();
    link.send(Inspect{1});  // the agent answers any message with the next part of the script
    others.expires_after(std::chrono::milliseconds(50));
    co_await others.async_wait(net::use_tuple);
  }
  const StartOrder order;
  outcome.started = co_await link.start(order);
}

std::unique_ptr<Outcome> play(std::deque<std::vector<Message>> script, bool is_held = false) {
  asio::io_context loop;
  auto outcome = std::make_unique<Outcome>();
  const auto link = AgentLink::open(
      loop.get_executor(), std::make_unique<ScriptedAgent>(loop.get_executor(), std::move(script)),
      outcome->events);
  bool is_over = false;
  asio::co_spawn(loop, begin(*link, *outcome, is_held), [&](const std::exception_ptr& error) {
    CHECK_FALSE(error);
    is_over = true;
  });
  const Deadline deadline = Deadline::after_seconds(200);
  while (!is_over && !deadline.passed()) loop.run_one_for(std::chrono::milliseconds(20));
  CHECK(is_over);
  link->close();
  loop.poll();
  return outcome;
}

const Failed kFailed{"its guardian was killed"};

}  // namespace

TEST_CASE("An agent that fails right behind its answer to a start has not started") {
  const auto outcome = play({{Prepared{}}, {Started{}, kFailed}});
  CHECK(outcome->state.ok());
  CHECK(outcome->started.message() == kFailed.sentence);
  CHECK(outcome->events.lost.empty());
}

TEST_CASE(
    "An agent that fails right behind its answer to a prepare is reported by the start at the "
    "latest") {
  const auto outcome = play({{Prepared{}, kFailed}});
  CHECK(outcome->state.message() == kFailed.sentence);
  CHECK(outcome->started.message() == kFailed.sentence);
  CHECK(outcome->events.lost.empty());
}

TEST_CASE("A message out of turn ends the link") {
  const auto outcome = play({{Prepared{}, Started{}}});
  CHECK(outcome->started.message() ==
        "the agent's message moves the link from prepared to started");
}

TEST_CASE("The loss of an agent that is held is reported at once") {
  const auto outcome = play({{Prepared{}}, {kFailed}}, true);
  CHECK(outcome->held.ok());
  CHECK(outcome->events.lost == std::vector<std::string>{kFailed.sentence});
  CHECK(outcome->started.message() == kFailed.sentence);
}

TEST_CASE("An agent that is lost before it is held is reported by hold alone") {
  const auto outcome = play({{Prepared{}, kFailed}}, true);
  CHECK(outcome->held.message() == kFailed.sentence);
  CHECK(outcome->events.lost.empty());
}

TEST_CASE("An agent that was held starts as others do, and its loss there is the start's to tell") {
  const auto outcome = play({{Prepared{}}, {Pong{}}, {Started{}, kFailed}}, true);
  CHECK(outcome->held.ok());
  CHECK(outcome->started.message() == kFailed.sentence);
  CHECK(outcome->events.lost.empty());
}

TEST_CASE("An agent whose job is over within its answer to a start has started") {
  const auto outcome =
      play({{Prepared{}}, {Started{}, Exited{RankExit{.rank = 0}}, Finished{}, kFailed}});
  CHECK(outcome->started.ok());
  CHECK(outcome->events.exits.size() == 1);
  CHECK(outcome->events.is_finished);
  CHECK(outcome->events.lost.empty());
}

TEST_CASE("The end behind a start that failed is the start's to tell") {
  // Another rank had started already; its agent has ended it.
  const RankExit exit{.rank = 0, .signal = SIGTERM, .by_agent = true};
  const auto outcome =
      play({{Prepared{}}, {Started{not_found("no such program")}, Exited{exit}, Finished{}}});
  CHECK(outcome->started.message() == "no such program");
  CHECK(outcome->events.exits.empty());
  CHECK_FALSE(outcome->events.is_finished);
  CHECK(outcome->events.lost.empty());
}

TEST_CASE("Reports behind the end of a start that failed are not passed on") {
  const RankExit exit{.rank = 0, .signal = SIGTERM, .by_agent = true};
  const auto outcome =
      play({{Prepared{}}, {Started{not_found("no such program")}, Finished{}, Exited{exit}}});
  CHECK(outcome->started.message() == "no such program");
  CHECK(outcome->events.exits.empty());
}

TEST_CASE("An agent that leaves out a step of its preparation is not prepared") {
  const auto outcome = play({{EnvironmentWanted{}, EnvironmentFilesWanted{}}, {kFailed}});
  CHECK(outcome->prepared.message() == "the agent left out a step of its preparation");
}
