#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "runtime/submission/tensor_table.h"
#include "runtime/telemetry/metrics_service.h"
#include "runtime/telemetry/timeline.h"
#include "runtime/telemetry/trace_format.h"
#include "runtime/telemetry/trace_recorder.h"
#include "runtime/telemetry/trace_writer.h"
#include "runtime/trace_reader.h"

namespace hvd::runtime {
namespace {

using test::parse_trace;
using test::read_trace;
using test::Trace;
using Words = std::vector<std::string>;

struct TemporaryFile {
  TemporaryFile() : path(std::filesystem::temp_directory_path() / cat("hvd-trace-", ::getpid())) {}
  ~TemporaryFile() { std::filesystem::remove(path); }
  const std::string path;
};

std::string array_of(const std::vector<std::string>& values) {
  return "[" + join(values, ",\n") + "]";
}

// Returns the trace of the events that a rank has recorded.
struct Formatted {
  explicit Formatted(int32_t size)
      : format(size, 0, 17, [this](std::string_view value) { values.emplace_back(value); }) {}
  Trace trace() { return parse_trace(array_of(values)); }
  std::vector<std::string> values;
  TraceFormat format;
};

// A submission of one name, outside of any runtime core.
struct Named {
  Named(std::string text, std::vector<TensorSpec> tensors) : name(0, std::move(text)) {
    submission.name = &name;
    submission.request.tensors = std::move(tensors);
  }
  Name name;
  Submission submission;
};

}  // namespace

TEST_CASE(
    "the timeline's file is whole after each flush, over many pages, and ends without spaces") {
  const TemporaryFile temporary;
  auto file = TraceFile::create(temporary.path);
  REQUIRE(file.ok());
  CHECK(read_trace(temporary.path).events.empty());
  size_t written = 0;
  for (int i = 0; i < 400; ++i) {
    const std::string padding(static_cast<size_t>(i * 37 % 900), 'x');
    file->append(cat(R"({"ph":"M","name":")", padding, R"(","pid":)", i, "}"));
    ++written;
    if (i % 3 == 0) {
      REQUIRE(file->flush().ok());
      REQUIRE(read_trace(temporary.path).events.size() == written);
    }
  }
  file->append(cat("\"", std::string(TraceFile::kLongestEvent - 2, 'y'), "\""));
  REQUIRE(file->flush().ok());
  REQUIRE(file->finish().ok());
  std::ifstream stream(temporary.path);
  std::stringstream text;
  text << stream.rdbuf();
  CHECK(nlohmann::json::parse(text.str()).size() == written + 1);
  CHECK(text.str().ends_with("\n]\n"));
}

TEST_CASE("a file of an earlier timeline is replaced, and what cannot be written says why") {
  const TemporaryFile temporary;
  { std::ofstream(temporary.path) << std::string(20'000, 'z'); }
  auto file = TraceFile::create(temporary.path);
  REQUIRE(file.ok());
  CHECK(read_trace(temporary.path).events.empty());
  REQUIRE(file->finish().ok());
  CHECK(read_trace(temporary.path).events.empty());
  CHECK(TraceFile::create("/nowhere/at/all").error().message().find("/nowhere/at/all: ") !=
        std::string::npos);
  CHECK(!TraceFile::create("/").ok());
}

TEST_CASE("each generation of a job has a file of its own") {
  CHECK(timeline_path("out/trace.json", 0) == "out/trace.json");
  CHECK(timeline_path("out/trace.json", 2) == "out/trace.generation-2.json");
  CHECK(timeline_path("/tmp/a.b/trace", 10) == "/tmp/a.b/trace.generation-10");
  CHECK(timeline_path("", 2) == "");
  CHECK(timeline_path("DYNAMIC", 2) == "DYNAMIC");
}

TEST_CASE("a writer that is killed leaves JSON") {
  const TemporaryFile temporary;
  for (int round = 0; round < 40; ++round) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      auto file = TraceFile::create(temporary.path + (round % 2 == 0 ? "" : "-odd"));
      for (int i = 0; file.ok(); ++i) {
        file->append(cat(R"({"ph":"M","name":"x","pid":)", i, "}"));
        if (!file->flush().ok()) ::_exit(1);
      }
      ::_exit(1);
    }
    const std::string path = temporary.path + (round % 2 == 0 ? "" : "-odd");
    // Kills the writing process, a little later each time.
    for (;;) {
      std::error_code ignored;
      const auto size = std::filesystem::file_size(path, ignored);
      if (!ignored && size > 4096u * static_cast<unsigned>(2 + round)) break;
    }
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    CHECK(!read_trace(path).events.empty());
    std::filesystem::remove(path);
  }
}

TEST_CASE("a rank's records become the events that tools know") {
  TraceRecorder recorder;
  Named a("allreduce.a", {{HVD_FLOAT32, {2, 3}}});
  recorder.negotiate(a.submission);
  CHECK(recorder.empty());  // without a timeline, the rank records no event
  recorder.start(true);
  Submission* batch[] = {&a.submission};
  recorder.cycle();
  recorder.negotiate(a.submission);
  recorder.decide(a.submission, true);
  const uint32_t number = recorder.start_batch(HVD_ALLREDUCE, HVD_FLOAT32, batch);
  recorder.activity(number, "SHM_ALLREDUCE");
  recorder.end_batch(number);
  recorder.negotiate(a.submission);
  recorder.decide(a.submission, false);
  Formatted formatted(4);
  TraceBatch taken{3, 0, 250, 0, "host \"b\"", {}};
  recorder.take(&taken.slots);
  formatted.format.add(taken);
  formatted.format.finish();
  const Trace trace = formatted.trace();
  CHECK(trace.of("allreduce.a", 3) == Words{"B NEGOTIATE_ALLREDUCE", "X 3", "E", "B ALLREDUCE",
                                            "B SHM_ALLREDUCE", "E", "E float32 [2, 3]",
                                            "B NEGOTIATE_ALLREDUCE", "X 3", "E"});
  CHECK(trace.count("CYCLE_START") == 1);
  CHECK(trace.open == 0);
  const auto& clock = *std::find_if(trace.events.begin(), trace.events.end(),
                                    [](const auto& e) { return e["name"] == "clock_alignment"; });
  CHECK(clock["args"]["error_us"] == 0.25);
  CHECK(trace.events[0]["args"]["start_time_since_epoch_in_micros"] == 17);
}

TEST_CASE("a batch on a device has its times, and another one of its tensor may begin meanwhile") {
  TraceRecorder recorder;
  Named a("allreduce.a", {{HVD_FLOAT32, {2}}});
  Submission* batch[] = {&a.submission};
  const auto start = [&] {
    recorder.negotiate(a.submission);
    recorder.decide(a.submission, true);
    const uint32_t number = recorder.start_batch(HVD_ALLREDUCE, HVD_FLOAT32, batch);
    recorder.activity(number, "NCCL_ALLREDUCE");
    return number;
  };
  recorder.start(false);
  const uint32_t early = start();
  recorder.start(false);  // the batch of the last timeline ends in this one, and has no events here
  const uint32_t first = start();
  recorder.leave(first);
  const uint32_t second = start();
  recorder.end_batch(early);
  const auto from = [now = Clock::now()](int milliseconds) {
    return now + std::chrono::milliseconds(milliseconds);
  };
  recorder.ran(first, from(-5), from(-3));
  recorder.end_batch(first);
  recorder.ran(second, from(-3), from(1));
  recorder.end_batch(second);
  Formatted formatted(4);
  TraceBatch taken{3, 0, 0, 0, "", {}};
  recorder.take(&taken.slots);
  formatted.format.add(taken);
  formatted.format.finish();
  const Trace trace = formatted.trace();
  const Words once{"B NEGOTIATE_ALLREDUCE", "X 3", "E", "B ALLREDUCE", "B NCCL_ALLREDUCE", "E",
                   "E float32 [2]"};
  Words twice = once;
  twice.insert(twice.end(), once.begin(), once.end());
  CHECK(trace.of("allreduce.a", 3) == twice);
  CHECK(trace.of("allreduce.a", 4 + 3) == Words{"X NCCL_ALLREDUCE", "X NCCL_ALLREDUCE"});
  std::vector<double> took;
  for (const auto& event : trace.events) {
    if (event.contains("dur") && event["tid"] == 4 + 3) took.push_back(event["dur"]);
  }
  CHECK(took == std::vector<double>{2000, 4000});
  CHECK(trace.open == 0);
}

TEST_CASE("a group's members are tensors of their own, run by their element types") {
  TraceRecorder recorder;
  recorder.start(false);
  recorder.cycle();
  Named group("grouped_allreduce.g", {{HVD_FLOAT32, {5}}, {HVD_INT64, {}}, {HVD_FLOAT32, {1, 1}}});
  Submission* batch[] = {&group.submission};
  recorder.negotiate(group.submission);
  recorder.decide(group.submission, true);
  for (const int32_t dtype : {HVD_FLOAT32, HVD_INT64}) {
    const uint32_t number = recorder.start_batch(HVD_ALLREDUCE, dtype, batch);
    recorder.activity(number, "cpu");
    recorder.activity(number, nullptr);
    recorder.end_batch(number);
  }
  Formatted formatted(1);
  TraceBatch taken;
  recorder.take(&taken.slots);
  formatted.format.add(taken);
  const Trace trace = formatted.trace();
  for (const auto& [name, last] : {std::pair("grouped_allreduce.g_1of3", "E float32 [5]"),
                                   std::pair("grouped_allreduce.g_2of3", "E int64 []"),
                                   std::pair("grouped_allreduce.g_3of3", "E float32 [1, 1]")}) {
    CHECK(trace.of(name, 0) ==
          Words{"B NEGOTIATE_ALLREDUCE", "X 0", "E", "B ALLREDUCE", "B cpu", "E", last});
  }
  CHECK(trace.count("CYCLE_START") == 0);
}

TEST_CASE("events that were lost are counted, and the rest still nests") {
  TraceRecorder recorder;
  recorder.start(false);
  Named a("a", {{HVD_UINT8, {1}}});
  Submission* batch[] = {&a.submission};
  for (size_t i = 0; i < TraceRecorder::kSlots; ++i) {
    recorder.negotiate(a.submission);
    recorder.decide(a.submission, true);
    recorder.end_batch(recorder.start_batch(HVD_ALLREDUCE, HVD_UINT8, batch));
  }
  CHECK(recorder.is_filling());
  CHECK(recorder.dropped() > TraceRecorder::kSlots);
  Formatted formatted(1);
  TraceBatch taken;
  taken.dropped = recorder.dropped();
  recorder.take(&taken.slots);
  CHECK(taken.slots.size() == TraceRecorder::kSlots);
  // Simulates slots that are lost in transit.
  taken.slots.erase(taken.slots.begin() + 5000, taken.slots.begin() + 5007);
  formatted.format.add(taken);
  formatted.format.finish();
  const Trace trace = formatted.trace();
  CHECK(trace.open == 0);
  CHECK(trace.count("dropped_events") == 1);
}

TEST_CASE("the root's clock is known as well as the quickest exchange allows") {
  ClockEstimate clock(false);
  CHECK(!clock.known());
  clock.add(1000, 501'400, 501'600, 2000);  // 1,000 for the round trip, 200 of it at the root
  CHECK(clock.offset() == 500'000);
  CHECK(clock.error(2000) == 401);
  clock.add(3000, 600'000, 600'000, 90'000);  // a slow round trip is less accurate
  CHECK(clock.offset() == 500'000);
  clock.add(100'000, 600'110, 600'110, 100'200);
  CHECK(clock.offset() == 500'010);
  CHECK(clock.error(100'200 + 20'000'000) == 101 + 2000);  // the clock drifts
  clock.add(5, 1, 900, 10);  // the reply precedes the request: ignored
  clock.add(INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX);
  CHECK(clock.offset() == 500'010);
}

TEST_CASE("ranks of one machine have one clock, unless it is seen not to be") {
  ClockEstimate same(true);
  same.add(1000, 1400, 1500, 2000);
  CHECK(same.offset() == 0);
  CHECK(same.error(1'000'000'000) == 0);
  ClockEstimate apart(true);
  apart.add(1000, 500'001'400, 500'001'500, 2000);
  CHECK(apart.offset() > 499'000'000);
}

TEST_CASE("timeline messages come back as they were, and cut ones are refused") {
  TimelineMessage message;
  message.kind = TimelineMessageKind::kEvents;
  message.run = 7;
  message.text = "path";
  message.mark_cycles = true;
  message.asks = {{1, 2}, {3, 4}};
  message.pongs = {{5, 6, 7}};
  message.slots = {{8, 9, TraceKind::kDone, 1, 2, 0}};
  ByteWriter out;
  encode(message, out);
  TimelineMessage back;
  REQUIRE(decode(out.view(), &back).ok());
  ByteWriter again;
  encode(back, again);
  CHECK(as_text(out.view()) == as_text(again.view()));
  for (size_t size = 0; size < out.size(); ++size) {
    CHECK(!decode(out.view().first(size), &back).ok());
  }
  for (const uint8_t kind : {0, 10}) {
    Bytes bytes(out.view().begin(), out.view().end());
    bytes[0] = std::byte{kind};
    CHECK(!decode(bytes, &back).ok());
  }
}

TEST_CASE("histograms count in buckets that double") {
  Histogram histogram;
  for (const uint64_t value : {0, 1, 2, 3, 4, 5, 1024, 1025}) histogram.observe(value);
  histogram.observe(UINT64_MAX / 2);
  CHECK(histogram.counts[0] == 2);  // values of at most 1
  CHECK(histogram.counts[1] == 1);  // values of at most 2
  CHECK(histogram.counts[2] == 2);  // values of at most 4
  CHECK(histogram.counts[3] == 1);
  CHECK(histogram.counts[10] == 1);  // values of at most 1024
  CHECK(histogram.counts[11] == 1);
  CHECK(histogram.counts[Histogram::kBounds] == 1);
}

TEST_CASE("metrics messages come back as they were, and cut ones are refused") {
  MetricsMessage message;
  message.kind = MetricsMessageKind::kResult;
  message.asks = {{1, 2}};
  message.values.resize(2);
  message.values[1].host = "b";
  message.values[1].metrics.count(Counter::kStalls, 3);
  message.values[1].groups = {{"a \"group\"", 7}};
  ByteWriter out;
  encode(message, out);
  MetricsMessage back;
  REQUIRE(decode(out.view(), &back).ok());
  CHECK(back.values[1].host == "b");
  CHECK(back.values[1].metrics.counters[static_cast<size_t>(Counter::kStalls)] == 3);
  CHECK(metrics_text(back.values).find("{rank=\"0\",host=\"b\",group=\"a \\\"group\\\"\"} 7\n") !=
        std::string::npos);
  for (size_t size = 0; size < out.size(); size += 7) {
    CHECK(!decode(out.view().first(size), &back).ok());
  }
}

TEST_CASE("a host's name is a label, whatever it is") {
  MetricsOfRank rank;
  rank.host = "a\"\\\nb";
  const std::string text = metrics_text({rank});
  CHECK(text.find("host=\"a\\\"") != std::string::npos);
  CHECK(text.find("\nb\"") == std::string::npos);
}

}  // namespace hvd::runtime
