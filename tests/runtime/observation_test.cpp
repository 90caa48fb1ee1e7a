// Timelines and metrics of ranks in one process.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <regex>
#include <thread>

#include "base/text.h"
#include "runtime/ranks.h"
#include "runtime/trace_reader.h"

namespace hvd::test {
namespace {

using Words = std::vector<std::string>;
using runtime::Runtime;

struct TemporaryFile {
  explicit TemporaryFile(const char* name)
      : path(std::filesystem::temp_directory_path() / cat("hvd-", name, "-", ::getpid())) {}
  ~TemporaryFile() { std::filesystem::remove(path); }
  const std::string path;
};

Words run_of(const std::string& op, int rank, const std::string& activity,
             const std::string& last) {
  Words words = {"B NEGOTIATE_" + op, "X " + std::to_string(rank), "E", "B " + op};
  for (const std::string& word : split(activity, ' ')) {
    words.insert(words.end(), {"B " + word, "E"});
  }
  words.push_back(last);
  return words;
}

Words twice(Words words) {
  const Words once = words;
  words.insert(words.end(), once.begin(), once.end());
  return words;
}

void sum(Runtime& runtime, const std::string& name, size_t count = 6) {
  Work work(HVD_ALLREDUCE, name, std::vector<float>(count, 1), HVD_FLOAT32);
  CHECK(work.run(runtime).ok());
}

// Returns the samples of a text with lines "name{labels} value".
std::map<std::string, double> samples_of(const std::string& text) {
  static const std::regex kSample(
      R"re(([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} ([-+0-9.e]+|\+Inf))re");
  static const std::regex kComment(
      R"re(# (HELP horovod_[a-z_]+ .+|TYPE horovod_[a-z_]+ (counter|gauge|histogram)))re");
  std::map<std::string, double> samples;
  std::string family;
  for (const std::string& line : split(text, '\n')) {
    std::smatch match;
    if (line.empty()) continue;
    if (line[0] == '#') {
      REQUIRE_MESSAGE(std::regex_match(line, kComment), line);
      if (line.starts_with("# TYPE ")) family = line.substr(7, line.find(' ', 7) - 7);
      continue;
    }
    REQUIRE_MESSAGE(std::regex_match(line, match, kSample), line);
    CHECK_MESSAGE(match[1].str().starts_with(family), line);
    if (match[1] == "horovod_rank_up") {
      CHECK(match[3] == "1");
      continue;
    }
    const auto [found, fresh] =
        samples.emplace(match[1].str() + "{" + match[2].str() + "}", std::stod(match[3].str()));
    CHECK_MESSAGE(fresh, line);
  }
  CHECK(text.ends_with("\n"));
  return samples;
}

}  // namespace

TEST_CASE("a timeline has the events of all ranks, under the names that tools know") {
  const TemporaryFile file("sequences");
  Ranks ranks(3);
  // One rank starts the timeline for all ranks; the other ranks need not call anything.
  REQUIRE(ranks[2].observation().start_timeline(file.path, false).ok());
  ranks.each([&](int rank) {
    // A rank that announced work before the timeline's start records the rest of the work.
    sum(ranks[rank], "allreduce.first");
    for (int i = 0; i < 3; ++i) sum(ranks[rank], "allreduce.a");
    Work gathered(HVD_ALLGATHER, "allgather.b", std::vector<int32_t>(4, rank), HVD_INT32, {2, 2});
    CHECK(gathered.run(ranks[rank]).ok());
    Work sent(HVD_BROADCAST, "broadcast.c", std::vector<double>{1}, HVD_FLOAT64);
    CHECK(sent.run(ranks[rank]).ok());
    Work shared(HVD_REDUCESCATTER, "reducescatter.d", std::vector<float>(6, 1), HVD_FLOAT32);
    CHECK(shared.run(ranks[rank]).ok());
    Work barrier(HVD_BARRIER, "", std::vector<float>{}, HVD_FLOAT32);
    CHECK(barrier.run(ranks[rank]).ok());
    // The ranks disagree about the shape.
    Work bad(HVD_ALLREDUCE, "allreduce.e", std::vector<float>(static_cast<size_t>(rank + 1), 1),
             HVD_FLOAT32);
    CHECK(!bad.run(ranks[rank]).ok());
  });
  REQUIRE(ranks[1].observation().stop_timeline().ok());
  const Trace trace = read_trace(file.path);
  CHECK(trace.open == 0);
  CHECK(trace.count("dropped_events") == 0);
  CHECK(trace.count("clock_alignment") == 3);
  for (int rank = 0; rank < 3; ++rank) {
    const Words once = run_of("ALLREDUCE", rank, "memory", "E float32 [6]");
    Words thrice = twice(once);
    thrice.insert(thrice.end(), once.begin(), once.end());
    CHECK(trace.of("allreduce.a", rank) == thrice);
    const Words first = trace.of("allreduce.first", rank);
    REQUIRE(first.size() >= 4);
    CHECK(Words(first.end() - 4, first.end()) == Words(once.end() - 4, once.end()));
    CHECK(trace.of("allgather.b", rank) ==
          run_of("ALLGATHER", rank, "ALLOCATE_OUTPUT memory", "E int32 [2, 2]"));
    CHECK(trace.of("broadcast.c", rank) == run_of("BROADCAST", rank, "memory", "E float64 [1]"));
    CHECK(trace.of("reducescatter.d", rank) ==
          run_of("REDUCESCATTER", rank, "ALLOCATE_OUTPUT memory", "E float32 [6]"));
    CHECK(trace.of("allreduce.e", rank) ==
          Words{"B NEGOTIATE_ALLREDUCE", "X " + std::to_string(rank), "E"});
  }
  CHECK(trace.count("NEGOTIATE_BARRIER") == 3);
  CHECK(trace.count("BARRIER") == 0);
}

TEST_CASE("the built-in operations say which links they use") {
  if (!has_builtin_links()) {
    MESSAGE("SKIP: this build has no built-in links");
    return;
  }
  const TemporaryFile file("builtin");
  RanksOptions options;
  options.links = Links::kBuiltin;
  Ranks ranks(2, options);
  REQUIRE(ranks[0].observation().start_timeline(file.path, false).ok());
  ranks.each([&](int rank) {
    sum(ranks[rank], "allreduce.first");
    sum(ranks[rank], "allreduce.a");
  });
  REQUIRE(ranks[0].observation().stop_timeline().ok());
  const Words words = read_trace(file.path).of("allreduce.a", 1);
  CHECK(words == run_of("ALLREDUCE", 1, "SHM_ALLREDUCE", "E float32 [6]"));
}

TEST_CASE("batches on devices have the times of their device, and so have their steps") {
  const TemporaryFile file("devices");
  RanksOptions options;
  options.has_devices = true;
  options.device_time = std::chrono::hours(1);
  std::vector<RankCounters> counters(2);
  options.counters = &counters;
  Ranks ranks(2, options);
  REQUIRE(ranks[0].observation().start_timeline(file.path, false).ok());
  ranks.each([&](int rank) {
    for (int i = 0; i < 5; ++i) {
      Work work(HVD_ALLREDUCE, "allreduce.a", std::vector<float>(6, 1), HVD_FLOAT32);
      work.submission.device = rank;
      CHECK(work.run(ranks[rank]).ok());
    }
  });
  REQUIRE(ranks[0].observation().stop_timeline().ok());
  const Trace trace = read_trace(file.path);
  for (const int rank : {0, 1}) {
    CHECK(trace.of("allreduce.a", 2 + rank) == Words(5, "X memory"));
    const StepLog& log = counters[static_cast<size_t>(rank)].steps;
    REQUIRE((log.ended >= 2 && log.ended < 5));
    for (size_t step = 0; step < log.ended; ++step) {
      CHECK(log.steps[step].device_microseconds == 3'600'000'000);
      CHECK(log.steps[step].waited_microseconds < 3'600'000'000);
    }
  }
}

TEST_CASE("cycles are marked when that is asked for") {
  const TemporaryFile file("cycles");
  Ranks ranks(2);
  for (const bool marked : {true, false}) {
    REQUIRE(ranks[1].observation().start_timeline(file.path, marked).ok());
    ranks.each([&](int rank) {
      sum(ranks[rank], "first");
      for (int i = 0; i < 5; ++i) sum(ranks[rank], "a");
    });
    REQUIRE(ranks[0].observation().stop_timeline().ok());
    const Trace trace = read_trace(file.path);
    if (marked)
      CHECK(trace.count("CYCLE_START") >= 10);  // five or six windows of each rank
    else
      CHECK(trace.count("CYCLE_START") == 0);
    CHECK(trace.of("a", 1).size() == 35);
  }
}

TEST_CASE("timelines start and stop a hundred times, while work goes on") {
  const TemporaryFile file("hundred");
  Ranks ranks(2);
  std::thread observer([&] {
    for (int i = 0; i < 100; ++i) {
      Runtime& asker = ranks[i % 2];
      CHECK(asker.observation().start_timeline(file.path, i % 3 == 0).ok());
      CHECK(asker.observation().stop_timeline().ok());
      CHECK(read_trace(file.path).open == 0);
    }
  });
  ranks.each([&](int rank) {
    for (int i = 0; i < 2000; ++i) sum(ranks[rank], cat("a", i % 7));
  });
  observer.join();
}

TEST_CASE("a file that cannot be written is one sentence for who asked, and stops nothing") {
  const TemporaryFile file("unwritable");
  RanksOptions options;
  REQUIRE(options.settings.set("timeline", "/nowhere/at/all").ok());
  Ranks ranks(2, options);
  const Status status = ranks[1].observation().start_timeline("/nowhere/either", false);
  CHECK(status.message() == "cannot write the timeline /nowhere/either: No such file or directory");
  ranks.each([&](int rank) { sum(ranks[rank], "a"); });
  CHECK(ranks[0].observation().stop_timeline().ok());  // no timeline runs
  REQUIRE(ranks[0].observation().start_timeline(file.path, false).ok());
  CHECK(ranks[1].observation().start_timeline(file.path, false).ok());  // rank 1 takes part
  CHECK(!ranks[1].observation().start_timeline(file.path + ".other", false).ok());  // timeline runs
  CHECK(ranks[1].observation().stop_timeline().ok());
}

TEST_CASE("a timeline of the settings begins with the job and is complete at its end") {
  const TemporaryFile file("settings");
  {
    RanksOptions options;
    REQUIRE(options.settings.set("timeline", file.path).ok());
    REQUIRE(options.settings.set("timeline_mark_cycles", "1").ok());
    Ranks ranks(3, options);
    ranks.each([&](int rank) {
      sum(ranks[rank], "first");
      sum(ranks[rank], "a");
    });
    ranks.shutdown();
  }
  const Trace trace = read_trace(file.path);
  CHECK(trace.open == 0);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(trace.of("a", rank) == run_of("ALLREDUCE", rank, "memory", "E float32 [6]"));
  }
  CHECK(trace.count("CYCLE_START") >= 3);
}

TEST_CASE("a job that fails leaves the timeline until then") {
  const TemporaryFile file("failed");
  Ranks ranks(2);
  REQUIRE(ranks[0].observation().start_timeline(file.path, false).ok());
  ranks.each([&](int rank) {
    sum(ranks[rank], "first");
    sum(ranks[rank], "a");
  });
  ranks[0].fail(aborted("the test ends it"));
  CHECK(!ranks[1].observation().stop_timeline().ok());
  ranks.shutdown();
  const Trace trace = read_trace(file.path);
  CHECK(trace.of("a", 0) == run_of("ALLREDUCE", 0, "memory", "E float32 [6]"));
}

TEST_CASE("metrics count exactly what a known program does") {
  Ranks ranks(3);
  ranks.each([&](int rank) {
    for (int i = 0; i < 5; ++i) sum(ranks[rank], "a", 100);
    Work gathered(HVD_ALLGATHER, "b", std::vector<int32_t>(static_cast<size_t>(rank), 0),
                  HVD_INT32);
    CHECK(gathered.run(ranks[rank]).ok());
    Work bad(HVD_ALLREDUCE, "c", std::vector<float>(static_cast<size_t>(rank + 1), 1), HVD_FLOAT32);
    CHECK(!bad.run(ranks[rank]).ok());
  });
  // Any rank may request it; other ranks call nothing.
  const auto text = ranks[1].observation().metrics(HVD_METRICS_JOB);
  REQUIRE(text.ok());
  const auto samples = samples_of(*text);
  std::string host;
  for (const auto& [name, value] : samples) {
    if (host.empty())
      host = name.substr(name.find("host=\""),
                         name.find(',', name.find("host=\"")) - name.find("host=\""));
  }
  for (int rank = 0; rank < 3; ++rank) {
    const std::string who = cat("rank=\"", rank, "\",", host);
    const auto value = [&](const std::string& name, const std::string& more = "") {
      const auto found = samples.find(cat("horovod_", name, "{", who, more, "}"));
      REQUIRE_MESSAGE(found != samples.end(), name << who << more);
      return found->second;
    };
    const std::string allreduce = ",operation=\"allreduce\"";
    CHECK(value("operations_total", allreduce) == 5);
    CHECK(value("failed_operations_total", allreduce) == 1);
    CHECK(value("bytes_total", allreduce) == 2000);
    CHECK(value("operations_total", ",operation=\"allgather\"") == 1);
    CHECK(value("bytes_total", ",operation=\"allgather\"") == 4 * rank);
    CHECK(value("operations_total", ",operation=\"barrier\"") == 0);
    CHECK(value("operation_seconds_count", allreduce) == 6);
    CHECK(value("operation_seconds_bucket", allreduce + ",le=\"+Inf\"") == 6);
    CHECK(value("steps_total") == 4);  // the fifth step has not ended
    CHECK(value("passes_total") > 0);
    CHECK(value("batches_total") == 6);
    CHECK(value("batch_tensors_total") == 6);
    CHECK(value("fused_tensors_total") == 0);
    CHECK(value("negotiation_seconds_count") == 8);  // includes one at the start
    CHECK(value("cache_hits_total") + value("cache_misses_total") == 8);
    CHECK(value("cache_hits_total") == 3);  // the second agreement assigns an id
    CHECK(value("stalls_total") == 0);
    CHECK(value("pending_operations") == 0);
    CHECK(value("messages_total") > 0);
  }
}

TEST_CASE("a rank's own metrics need no other rank, and outlive the job") {
  Ranks ranks(2);
  const auto own = ranks[1].observation().metrics(HVD_METRICS_RANK);
  REQUIRE(own.ok());
  CHECK(own->find("rank=\"1\"") != std::string::npos);
  CHECK(own->find("rank=\"0\"") == std::string::npos);
  ranks.shutdown();
  CHECK(ranks[1].observation().metrics(HVD_METRICS_RANK).ok());
  const auto all = ranks[1].observation().metrics(HVD_METRICS_JOB);
  CHECK(!all.ok());
}

TEST_CASE("the steps of a rank tell how long it waits for a late one") {
  constexpr auto kLate = std::chrono::milliseconds(6);
  constexpr double kWaited = 0.005;  // seconds at least, on a busy machine too
  std::atomic<int> early = 0;        // calls of ranks 0 and 1 that have begun
  Ranks ranks(3);
  CHECK(samples_of(*ranks[0].observation().metrics(HVD_METRICS_STEP)).empty());
  ranks.each([&](int rank) {
    for (int i = 0; i < 12; ++i) {
      Work work(HVD_ALLREDUCE, "a", std::vector<float>(100, 1), HVD_FLOAT32);
      if (rank == 2) {
        while (early < 2 * (i + 1)) std::this_thread::yield();
        std::this_thread::sleep_for(kLate);
      }
      CHECK(work.submit(ranks[rank]).ok());
      if (rank != 2) ++early;
      CHECK(work.finish(ranks[rank]).ok());
      sum(ranks[rank], "b", 50);
    }
  });
  std::array<std::map<std::string, double>, 3> steps;
  for (int rank = 0; rank < 3; ++rank) {
    for (const auto& sample : samples_of(*ranks[rank].observation().metrics(HVD_METRICS_STEP))) {
      const std::string& name = sample.first;  // clang 14 cannot capture a binding in a lambda
      CHECK_MESSAGE(name.find(cat("{rank=\"", rank, "\",host=\"")) != std::string::npos, name);
      steps[static_cast<size_t>(rank)][name.substr(0, name.find('{'))] = sample.second;
    }
  }
  for (const auto& of_rank : steps) {
    CHECK(of_rank.size() == 3);  // without a launcher, nothing compares the ranks
    CHECK(of_rank.at("horovod_step_seconds") >= kWaited);
    CHECK(of_rank.at("horovod_step_bytes") == 600);
  }
  const auto waited = [&](size_t rank) {
    return steps[rank].at("horovod_step_waited_ratio") * steps[rank].at("horovod_step_seconds");
  };
  CHECK(waited(0) >= kWaited);
  CHECK(waited(1) >= kWaited);
  CHECK(waited(2) <= steps[2].at("horovod_step_seconds"));
}

TEST_CASE("many may ask for metrics at once") {
  Ranks ranks(4);
  ranks.each([&](int rank) {
    for (int i = 0; i < 20; ++i) {
      const auto text = ranks[rank].observation().metrics(HVD_METRICS_JOB);
      REQUIRE(text.ok());
      CHECK(text->find("rank=\"3\"") != std::string::npos);
    }
  });
}

}  // namespace hvd::test
