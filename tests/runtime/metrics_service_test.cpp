#include "runtime/telemetry/metrics_service.h"

#include <doctest/doctest.h>

#include <deque>

#include "base/text.h"

namespace hvd::runtime {
namespace {

// Services of ranks without links: the test moves the messages.
struct Rank {
  Rank(int32_t number, int32_t size)
      : service(number, size,
                [number] {
                  return MetricsOfRank{number, "a", {}};
                },
                {[this](ByteView bytes) { to_root.emplace_back(bytes.begin(), bytes.end()); },
                 [this](ByteView bytes) { to_all.emplace_back(bytes.begin(), bytes.end()); },
                 {}}) {}
  std::deque<Bytes> to_root, to_all;
  MetricsService service;
};

Bytes take(std::deque<Bytes>& from) {
  REQUIRE(!from.empty());
  Bytes message = std::move(from.front());
  from.pop_front();
  return message;
}

bool has(const std::string& text, const std::string& sample) {
  return text.find(sample + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("a rank that does not answer is left out, and comes again in the next answer") {
  Rank root(0, 2), other(1, 2);
  for (const bool answers : {false, true}) {
    const auto question = std::make_shared<Question>();
    root.service.ask_job(question);
    root.service.receive(0, take(root.to_root));
    const Bytes collect = take(root.to_all);
    root.service.receive(0, collect);
    root.service.receive(0, take(root.to_root));
    other.service.receive(0, collect);
    if (answers) root.service.receive(1, other.to_root.back());
    CHECK(question->done == answers);
    const Clock::time_point alarm = root.service.alarm();
    if (!answers) {
      REQUIRE(alarm < Clock::now() + std::chrono::milliseconds(500));
      root.service.on_alarm(alarm);
    }
    REQUIRE(question->done);
    CHECK(question->status.ok());
    CHECK(has(question->text, "horovod_rank_up{rank=\"0\"} 1"));
    CHECK(has(question->text, cat("horovod_rank_up{rank=\"1\"} ", answers ? 1 : 0)));
    CHECK(has(question->text, "horovod_passes_total{rank=\"1\",host=\"a\"} 0") == answers);
    CHECK(root.service.alarm() == Clock::time_point::max());
    // This reply comes too late for its request.
    if (!answers) root.service.receive(1, take(other.to_root));
  }
}

TEST_CASE("a rank whose root does not answer tells what it has itself") {
  Rank rank(1, 3);
  const auto question = std::make_shared<Question>();
  rank.service.ask_job(question);
  const Clock::time_point alarm = rank.service.alarm();
  rank.service.on_alarm(alarm - std::chrono::milliseconds(1));
  CHECK(!question->done);
  rank.service.on_alarm(alarm);
  REQUIRE(question->done);
  CHECK(has(question->text, "horovod_rank_up{rank=\"0\"} 0"));
  CHECK(has(question->text, "horovod_rank_up{rank=\"1\"} 1"));
  CHECK(has(question->text, "horovod_passes_total{rank=\"1\",host=\"a\"} 0"));
  CHECK(rank.service.alarm() == Clock::time_point::max());
}

TEST_CASE("a long name of a group travels without a part of a character") {
  hvd::runtime::MetricsMessage message, read;
  message.values.emplace_back().groups.push_back({"x", 7});
  std::string& name = message.values[0].groups[0].name;
  for (int i = 0; i < 200; ++i) name += "\xc3\xa4";
  hvd::ByteWriter out;
  encode(message, out);
  REQUIRE(decode(out.view(), &read).ok());
  CHECK(read.values[0].groups[0].name == name.substr(0, 255));
}

TEST_CASE("the end of the job ends the questions") {
  Rank root(0, 2);
  const auto question = std::make_shared<Question>();
  root.service.ask_job(question);
  root.service.receive(0, take(root.to_root));
  root.service.on_end(aborted("the job is over"));
  CHECK(question->done);
  CHECK(!question->status.ok());
  CHECK(root.service.alarm() == Clock::time_point::max());
}

}  // namespace hvd::runtime
