// Pending work: the ranks that the report names, the report's frequency, and the work's end.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "base/text.h"
#include "runtime/rank_checks.h"
#include "runtime/stall/stall_inquiry.h"
#include "runtime/stall/thread_stack.h"

using hvd::Clock;
using hvd::Code;
using hvd::Deadline;
using hvd::Status;
using hvd::runtime::StallAnswer;
using hvd::runtime::StallInquiry;
using hvd::runtime::StallReport;
using hvd::runtime::StallState;
using hvd::runtime::StallTimes;
using hvd::runtime::StallWaiting;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::sum_of;
using hvd::test::Work;
using namespace std::chrono_literals;

namespace {

// A report file that is removed after the test.
struct ReportFile {
  ReportFile() : path(hvd::cat("/tmp/stall-test-", ::getpid(), "-", this)) {}
  ~ReportFile() { std::remove(path.c_str()); }
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }
  // Returns the first line with all parts, or an empty string. A slow machine may report additional
  // stalls.
  std::string line_with(const std::vector<std::string>& parts) const {
    for (const std::string& line : lines()) {
      if (std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
            return line.find(part) != std::string::npos;
          })) {
        return line;
      }
    }
    return {};
  }
  const std::string path;
};

RanksOptions checked(const ReportFile& file, const char* warning, const char* shutdown = "0") {
  RanksOptions options;
  CHECK(options.settings.set("stall_check_time", warning).ok());
  CHECK(options.settings.set("stall_shutdown_time", shutdown).ok());
  CHECK(options.settings.set("stall_report", file.path).ok());
  CHECK(options.settings.set("hostname", "tester").ok());
  return options;
}

// Waits for an event of another thread.
template <typename F>
bool eventually(F&& f) {
  const Deadline deadline = Deadline::after_seconds(200);
  while (!f()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// An inquiry with simulated times.
struct Inquired {
  explicit Inquired(int32_t size, StallTimes times = {10, 0}, std::vector<int32_t> parents = {})
      : inquiry(
            size, times, [](int32_t, int32_t rank) { return rank != 9; },
            parents.empty() ? std::vector<int32_t>(static_cast<size_t>(size), -1) : parents),
        size(size) {
    for (int32_t rank = 0; rank < size; ++rank) {
      inquiry.hello(rank, {hvd::cat("host", rank), 100 + rank});
    }
  }
  void waits(int32_t rank, const std::string& name, double seconds, int32_t op = HVD_ALLREDUCE) {
    inquiry.waiting(rank, StallWaiting{{{{0, name}, op, seconds}}}, now);
  }
  // Asks if it is time; the ranks of `states` with a state answer, the other ranks do not.
  std::optional<StallReport> ask(const std::vector<std::optional<StallState>>& states,
                                 double last_seconds = 99) {
    now += 1s;
    const auto question = inquiry.ask(now);
    if (!question) return {};
    ++questions;
    for (size_t rank = 0; rank < states.size(); ++rank) {
      if (!states[rank]) continue;
      StallAnswer answer;
      answer.inquiry = question->inquiry;
      answer.states.assign(question->names.size(), *states[rank]);
      answer.last_name = "before";
      if (rank < places.size()) answer.place = places[rank];
      answer.last_seconds = last_seconds;
      inquiry.answer(static_cast<int32_t>(rank), answer);
    }
    if (auto report = inquiry.conclude(now)) return report;
    now += 5s;
    return inquiry.conclude(now);
  }
  StallInquiry inquiry;
  int32_t size;
  int questions = 0;
  std::vector<std::string> places;  // indexed by waiting rank
  Clock::time_point now = Clock::time_point() + std::chrono::hours(1);
};

constexpr auto kMissing = StallState::kMissing;
constexpr auto kWaiting = StallState::kWaiting;
constexpr auto kRunning = StallState::kRunning;

}  // namespace

TEST_CASE("waiting work is due after the warning time, twice that, and at the end") {
  const auto first = [](StallTimes times) {
    std::vector<double> due;
    for (uint32_t i = 0; i < 5; ++i) due.push_back(times.report_after(i));
    return due;
  };
  CHECK(first({60, 0}) == std::vector<double>{60, 120, 240, 480, 960});
  CHECK(first({60, 150}) == std::vector<double>{60, 120, 150, 240, 480});
  CHECK(first({60, 120}) == std::vector<double>{60, 120, 240, 480, 960});
  CHECK(first({60, 60}) == std::vector<double>{60, 120, 240, 480, 960});
}

TEST_CASE("the missing ranks are named, with those that are mute") {
  Inquired inquired(4);
  inquired.waits(0, "a", 10);
  const auto report = inquired.ask({kWaiting, kMissing, {}, kWaiting});
  REQUIRE(report.has_value());
  REQUIRE(report->work.size() == 1);
  CHECK(report->work[0].missing == std::vector<int32_t>{1, 2});
  CHECK(!report->fatal());
  REQUIRE(report->missing.size() == 2);
  CHECK(report->missing[0].host == "host1");
  CHECK(report->missing[0].pid == 101);
  CHECK(report->missing[0].answered);
  CHECK(!report->missing[1].answered);
  const std::string text = text_of(*report);
  CHECK(has(text, "longer") == false);
  CHECK(has(text, "10 seconds"));
  CHECK(has(text, "\nMissing ranks:\n1: [a]\n2: [a]\n"));
  CHECK(has(text, "rank 1 on host host1, pid 101: last submitted allreduce 'before' 99.0 s ago"));
  CHECK(has(text, "rank 2 on host host2, pid 102: does not answer"));
}

TEST_CASE("ranks that wait are grouped by operation and line, with the last operation of all") {
  Inquired inquired(5);
  inquired.waits(0, "a", 10);
  inquired.places = {"train.py:8 in main", "train.py:8 in main", "other\x1b.py:3 in f", "", ""};
  auto report = inquired.ask({kWaiting, kWaiting, kWaiting, kWaiting, kMissing});
  REQUIRE(report.has_value());
  REQUIRE(report->waiting.size() == 3);
  report->last_common = "before";
  const std::string text = text_of(*report);
  CHECK(has(text,
            "\nranks 0-1 wait in allreduce 'a', called at train.py:8 in main\n"
            "rank 2 waits in allreduce 'a', called at other\\x1b.py:3 in f\n"
            "rank 3 waits in allreduce 'a'\n"
            "The last operation of all ranks was allreduce 'before'."));
  const std::string json = json_of(*report, 1);
  CHECK(has(json,
            "\"waiting\":[{\"ranks\":[0,1],\"name\":\"a\",\"op\":\"allreduce\","
            "\"place\":\"train.py:8 in main\"},"));
  CHECK(json.ends_with("\"last_common\":{\"name\":\"before\",\"op\":\"allreduce\"}}"));
  report->last_common.clear();
  CHECK(json_of(*report, 1).ends_with("\"last_common\":null}"));
  CHECK(!has(text_of(*report), "last operation of all"));
}

TEST_CASE("ranks that all wait for others get a hint at their numbers of batches") {
  Inquired inquired(2);
  inquired.waits(0, "gradient", 10);
  auto report = inquired.ask({kWaiting, kMissing});
  REQUIRE(report.has_value());
  const std::string words = "Each missing rank waits for other ranks too";
  CHECK(!has(text_of(*report), words));
  report->waiting.push_back({{0, "metrics"}, HVD_ALLREDUCE, "", {1}});
  CHECK(has(text_of(*report), words));
}

TEST_CASE("the user's line is the innermost one outside installed packages") {
  using hvd::runtime::user_place;
  const std::string ours = "  File \"/b/python/horovod/_ops.py\", line 9 in wait\n";
  CHECK(user_place(ours + "  File \"/u/a.py\", line 3 in f\n  File \"/u/b.py\", line 4 in g") ==
        "a.py:3 in f");
  CHECK(user_place(ours) == "_ops.py:9 in wait");
  CHECK(user_place("  ...\nno frame") == "");
}

TEST_CASE("a silent rank is named alone, without the ranks whose answers come through it") {
  Inquired inquired(5, {10, 0}, {-1, 0, 0, 2, 2});
  inquired.waits(0, "a", 10);
  const auto report = inquired.ask({kWaiting, kMissing, {}, {}, {}});
  REQUIRE(report.has_value());
  CHECK(report->work[0].missing == std::vector<int32_t>{1, 2});
  REQUIRE(report->missing.size() == 2);
  CHECK(report->missing[1].hidden == std::vector<int32_t>{3, 4});
  CHECK(has(text_of(*report),
            "rank 2 on host host2, pid 102: does not answer; it is stopped, or its links to the "
            "other ranks are dead; the answers of these ranks come through it: 3, 4"));
  // A rank below a rank that answers is itself silent.
  inquired.now += std::chrono::seconds(30);
  inquired.waits(0, "b", 30);
  const auto other = inquired.ask({kWaiting, kWaiting, kWaiting, {}, kWaiting});
  REQUIRE(other.has_value());
  CHECK(other->work[0].missing == std::vector<int32_t>{3});
}

TEST_CASE("the report names the compiled program of the last submission") {
  StallReport report;
  StallReport::Rank rank{1, "host1", 101, true, {}};
  rank.answer.last_name = "before";
  rank.answer.last_program = "jit_step; this rank compiled the program again (compilation 2)";
  report.missing.push_back(rank);
  CHECK(has(text_of(report),
            "'before' 0.0 s ago in the compiled program jit_step; this rank compiled the program "
            "again (compilation 2)"));
  CHECK(has(json_of(report, 0), "\"program\":\"jit_step; this rank"));
  report.missing[0].answer.last_program.clear();
  CHECK(!has(text_of(report), "program"));
  CHECK(!has(json_of(report, 0), "program"));
}

TEST_CASE("a rank that does not answer is not missing where it is no member") {
  Inquired inquired(10);
  inquired.waits(0, "a", 10);
  std::vector<std::optional<StallState>> states(10, StallState::kExcused);
  states[0] = kWaiting;
  states[4] = kMissing;
  states[9].reset();
  const auto report = inquired.ask(states);
  REQUIRE(report.has_value());
  CHECK(report->work[0].missing == std::vector<int32_t>{4});
}

TEST_CASE("a rank that does not answer is missing from work that runs everywhere else") {
  Inquired inquired(2);
  inquired.waits(0, "a", 10);
  const auto report = inquired.ask({kRunning, {}});
  REQUIRE(report.has_value());
  CHECK(report->work[0].missing == std::vector<int32_t>{1});
}

TEST_CASE("an operation that completes late, or runs for long, is no stall") {
  Inquired inquired(2);
  inquired.waits(0, "a", 10);
  CHECK(!inquired.ask({kMissing, kMissing}));
  inquired.waits(0, "b", 10);
  CHECK(!inquired.ask({kRunning, kRunning}));
  CHECK(inquired.questions == 2);
}

TEST_CASE("the same stall is asked for once, and again when its time has doubled") {
  Inquired inquired(3);
  inquired.waits(0, "a", 10);
  inquired.waits(1, "a", 10);
  CHECK(inquired.ask({kWaiting, kWaiting, kMissing}));
  inquired.waits(1, "a", 11);
  CHECK(!inquired.ask({}));
  inquired.now += 8s;
  inquired.waits(0, "a", 20);
  CHECK(inquired.ask({kWaiting, kWaiting, kMissing}));
  CHECK(inquired.questions == 2);
}

TEST_CASE("a name that stalls anew is as young as it is") {
  Inquired inquired(2, {10, 60});
  inquired.waits(0, "a", 40);
  CHECK(inquired.ask({kWaiting, kMissing}));
  inquired.now += 30s;
  inquired.waits(0, "a", 10);
  const auto report = inquired.ask({kWaiting, kMissing});
  REQUIRE(report.has_value());
  CHECK(!report->fatal());
}

TEST_CASE("a rank that has joined waits for ranks that train on") {
  Inquired inquired(2);
  inquired.waits(0, "<join>", 10, HVD_JOIN);
  CHECK(!inquired.ask({kWaiting, kMissing}, 1));
  inquired.now += 20s;
  inquired.waits(0, "<join>", 31, HVD_JOIN);
  CHECK(inquired.ask({kWaiting, kMissing}, 31));
}

TEST_CASE("past the shutdown time the report is the last") {
  Inquired inquired(2, {10, 15});
  inquired.waits(0, "a", 15);
  const auto report = inquired.ask({kWaiting, kMissing});
  REQUIRE(report.has_value());
  CHECK(report->fatal());
  const std::string text = text_of(*report);
  CHECK(has(text, "\n1!: [a]\n"));
  CHECK(text.ends_with("Will shutdown."));
  CHECK(has(cause_of(*report).message(), "rank 1 on host host1, pid 101"));
  CHECK(cause_of(*report).lost_rank() == 1);
}

TEST_CASE("more than six names are cut, and JSON has them all") {
  Inquired inquired(2);
  for (const char* name : {"g\xff", "f", "e", "d", "c", "b", "\"a\"\n"})
    inquired.waits(0, name, 10);
  const auto report = inquired.ask({kWaiting, kMissing});
  REQUIRE(report.has_value());
  CHECK(has(text_of(*report), ", b, c, d, e, f ...]"));
  const std::string json = json_of(*report, 12.5);
  CHECK(has(json, "\"name\":\"\\\"a\\\"\\n\""));
  CHECK(has(json, "\"name\":\"g\\ufffd\""));
  CHECK(has(json, "\"time\":12.500"));
  CHECK(!has(json, "\n"));
}

TEST_CASE("a rank that submits nothing is reported with what it did last") {
  ReportFile file;
  RanksOptions options = checked(file, "0.1");
  options.machines = {0, 0, 1, 1};
  Ranks ranks(4, options);
  ranks.each([&](int rank) { CHECK(sum_of("before").run(ranks[rank]).ok()); });
  const std::vector<std::string> wanted = {"\"name\":\"late\",\"op\":\"allreduce\"",
                                           "\"missing_ranks\":[3]"};
  ranks.each([&](int rank) {
    if (rank == 3) CHECK(eventually([&] { return !file.line_with(wanted).empty(); }));
    Work work = sum_of("late");
    CHECK(work.run(ranks[rank]).ok());
  });
  const std::string line = file.line_with(wanted);
  CHECK(has(line, "\"rank\":3,\"host\":\"tester\",\"pid\":" + std::to_string(::getpid())));
  CHECK(has(line, "\"last_submitted\":{\"name\":\"before\""));
  CHECK(has(line, "main thread"));
  CHECK(ranks[0].stall_reports() >= 1);
  CHECK(ranks[1].stall_reports() == 0);
}

TEST_CASE("a barrier that not all reach is reported") {
  ReportFile file;
  Ranks ranks(2, checked(file, "0.1"));
  ranks.each([&](int rank) {
    const std::vector<std::string> wanted = {"\"op\":\"barrier\"", "\"missing_ranks\":[0]"};
    if (rank == 0) CHECK(eventually([&] { return !file.line_with(wanted).empty(); }));
    Work work(HVD_BARRIER, "", std::vector<float>{}, HVD_FLOAT32);
    CHECK(work.run(ranks[rank]).ok());
  });
}

TEST_CASE("in a process set only its members are missing") {
  ReportFile file;
  Ranks ranks(4, checked(file, "0.1"));
  ranks.each([&](int rank) {
    hvd_handle handle = 0;
    REQUIRE(ranks[rank].add_process_set({1, 2, 3}, &handle).ok());
    REQUIRE(ranks[rank].wait(handle, Deadline::after_seconds(200))->ok());
    hvd_output output{};
    REQUIRE(ranks[rank].output(handle, 0, &output).ok());
    REQUIRE(ranks[rank].release(handle).ok());
    if (rank == 0) return;
    const std::vector<std::string> wanted = {
        "\"name\":\"of the set\",\"op\":\"allreduce\",\"process_set\":1,", "\"missing_ranks\":[2]"};
    if (rank == 2) CHECK(eventually([&] { return !file.line_with(wanted).empty(); }));
    Work work = sum_of("of the set");
    work.submission.process_set = output.process_set;
    CHECK(work.run(ranks[rank]).ok());
  });
}

TEST_CASE("a named process set that is added misses its members alone") {
  ReportFile file;
  Ranks ranks(3, checked(file, "0.1"));
  ranks.each([&](int rank) {
    if (rank == 1) return;
    const std::vector<std::string> wanted = {"<process set 'named' [0, 2]>",
                                             "\"missing_ranks\":[2]"};
    if (rank == 2) CHECK(eventually([&] { return !file.line_with(wanted).empty(); }));
    hvd_handle handle = 0;
    REQUIRE(ranks[rank].add_named_set("named", {0, 2}, &handle).ok());
    CHECK(ranks[rank].wait(handle, Deadline::after_seconds(200))->ok());
    CHECK(ranks[rank].release(handle).ok());
  });
}

TEST_CASE(
    "a receive that waits misses the rank at the other end alone, whose last message is named") {
  ReportFile file;
  Ranks ranks(3, checked(file, "0.1"));
  ranks.each([&](int rank) {
    const auto exchange = [&](int32_t tag) {
      char byte = 0;
      hvd_message message{};
      message.struct_size = sizeof message;
      message.rank = rank == 0 ? 1 : 0;
      message.tag = tag;
      message.dtype = HVD_UINT8;
      message.count = 1;
      message.data = &byte;
      hvd_handle handle = 0;
      REQUIRE(ranks[rank].submit_message(rank == 0 ? HVD_RECV : HVD_SEND, message, &handle).ok());
      CHECK(ranks[rank].wait(handle, Deadline::after_seconds(200))->ok());
      CHECK(ranks[rank].release(handle).ok());
    };
    const std::vector<std::string> wanted = {
        "\"name\":\"recv from rank 1, tag 4\",\"op\":\"recv\"", "\"missing_ranks\":[1]",
        "\"last_submitted\":{\"name\":\"send to rank 0, tag 3\",\"op\":\"send\""};
    if (rank == 2) return;
    exchange(3);
    if (rank == 1) CHECK(eventually([&] { return !file.line_with(wanted).empty(); }));
    exchange(4);
  });
}

TEST_CASE("a rank that joins is reported when the others neither join nor do anything") {
  ReportFile file;
  Ranks ranks(2, checked(file, "0.1"));
  ranks.each([&](int rank) {
    CHECK(sum_of("before").run(ranks[rank]).ok());
    const std::vector<std::string> wanted = {"\"op\":\"join\"", "\"missing_ranks\":[1]"};
    if (rank == 1) CHECK(eventually([&] { return !file.line_with(wanted).empty(); }));
    Work work(HVD_JOIN, "", std::vector<float>{}, HVD_FLOAT32);
    work.submission.name = nullptr;
    work.submission.tensor_count = 0;
    CHECK(work.run(ranks[rank]).ok());
  });
}

TEST_CASE("after the shutdown time all pending work fails on every rank with the same cause") {
  ReportFile file;
  Ranks ranks(3, checked(file, "0.1", "0.3"));
  std::vector<Status> statuses(3);
  ranks.each([&](int rank) {
    Work work = sum_of(rank == 2 ? "other" : "common");
    const Status submitted = work.submit(ranks[rank]);
    statuses[static_cast<size_t>(rank)] = submitted.ok() ? work.finish(ranks[rank]) : submitted;
  });
  for (const Status& status : statuses) {
    CHECK(status.code() == Code::kAborted);
    INFO(status.message());
    CHECK(has(status.message(), "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"));
    CHECK(has(status.message(), "has waited"));
    CHECK(status == statuses[0]);
  }
  CHECK(has(file.lines().back(), "\"shutdown\":true"));
}

TEST_CASE("switched off, nobody says anything") {
  ReportFile file;
  RanksOptions options = checked(file, "0.05");
  CHECK(options.settings.set("stall_check_disable", "1").ok());
  Ranks ranks(2, options);
  ranks.each([&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(200ms);  // no event marks the absence of a report
    Work work = sum_of("late");
    CHECK(work.run(ranks[rank]).ok());
  });
  CHECK(file.lines().empty());
}

TEST_CASE("a rank with nothing pending is woken by nothing but the question") {
  ReportFile file;
  Ranks ranks(2, checked(file, "0.05"));
  ranks.each([&](int rank) { CHECK(sum_of("x").run(ranks[rank]).ok()); });
  std::this_thread::sleep_for(200ms);  // the helper threads fall asleep
  const uint64_t steps[2] = {ranks[0].counts().steps, ranks[1].counts().steps};
  std::this_thread::sleep_for(300ms);  // an event that must not happen cannot be awaited
  for (const int rank : {0, 1}) CHECK(ranks[rank].counts().steps == steps[rank]);
}

// ---- stacks ----

namespace {

std::atomic<int> stack_end{-1};

void write_stack(int) {
  const char text[] = "Stack (most recent call first):\n  File \"x.py\", line 3 in nap\n";
  [[maybe_unused]] const ssize_t n = ::write(stack_end.load(), text, sizeof text - 1);
}

}  // namespace

TEST_CASE("the main thread writes its stack when its signal comes, and only to its own handler") {
  const int number = SIGRTMAX - 4;
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  CHECK(!hvd::runtime::open_stack_channel(number, ends[0]).ok());
  stack_end = ends[1];
  struct sigaction action {};
  action.sa_handler = write_stack;
  REQUIRE(::sigaction(number, &action, nullptr) == 0);
  CHECK(!hvd::runtime::open_stack_channel(number, 1 << 20).ok());
  const auto channel = hvd::runtime::open_stack_channel(number, ends[0]);
  REQUIRE(channel.ok());
  for (int i = 0; i < 3; ++i) {
    CHECK(hvd::runtime::main_thread_stack(*channel) == "  File \"x.py\", line 3 in nap\n");
    std::string from_thread;
    std::thread([&] { from_thread = hvd::runtime::main_thread_stack(*channel); }).join();
    CHECK(from_thread == "  File \"x.py\", line 3 in nap\n");
  }
  action.sa_handler = SIG_DFL;  // the default action kills
  REQUIRE(::sigaction(number, &action, nullptr) == 0);
  CHECK(hvd::runtime::main_thread_stack(*channel).empty());
  CHECK(hvd::runtime::main_thread_stack({}).empty());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("without an interpreter the kernel says where the main thread is") {
  const std::string note = hvd::runtime::main_thread_note();
  INFO(note);
  CHECK(has(note, "main thread"));
  CHECK(has(note, " is in "));
}
