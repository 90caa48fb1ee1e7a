#include "launcher/output/line_router.h"

#include <doctest/doctest.h>

#include "base/text.h"
#include "launcher/hosts/host_table.h"
#include "launcher/output/terminal_text.h"

namespace hvd::launcher {
namespace {

constexpr auto kOut = OutputStream::kStdout, kErr = OutputStream::kStderr;

// Records the calls of a router: "keep 0 text", "show 0 text", ...
struct RecordingSinks : LineSinks {
  void keep(int rank, OutputStream, std::string_view lines, bool is_colored) override {
    text += cat("keep ", rank, is_colored ? " colored " : " ", lines);
  }
  std::string take_bars(int, OutputStream, std::string_view, std::string lines) override {
    return lines.ends_with("bar\r") ? "" : lines;
  }
  bool has_begun(int, OutputStream) override { return false; }
  void show(const ShownLines& lines) override {
    if (!lines.text.empty()) text += cat("show ", lines.rank, " ", lines.text);
    for (const auto& [rank, size] : lines.consumed) text += cat("consumed ", rank, " ", size, "\n");
  }
  void show_last(const ShownLines& lines, std::string_view held) override {
    text += cat("last ", held, ": ", lines.text);
  }
  void print(std::string_view sentence) override { text += cat("print ", sentence, "\n"); }
  void wake_by(Clock::time_point) override {}

  std::string take() { return std::exchange(text, {}); }
  std::string text;
};

// Two ranks on each of two hosts.
struct Routed {
  explicit Routed(LineStyle style) : router(hosts, std::move(style), sinks) {}
  std::string write(int rank, OutputStream stream, std::string_view bytes) {
    router.write(rank, stream, as_bytes(bytes), now);
    return sinks.take();
  }
  std::string wait(std::chrono::milliseconds duration) {
    const Clock::time_point until = now.time + duration;
    for (; router.due() <= until; router.on_time(now)) now.time = router.due();
    now.time = until;
    return sinks.take();
  }
  HostTable hosts{*plan_slots({{"a", "", 2}, {"b", "", 2}}, {})};
  RecordingSinks sinks;
  Moment now{Clock::time_point(std::chrono::hours(1)), {}};
  LineRouter router;
};

constexpr std::string_view kTraceback =
    "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n";

}  // namespace

TEST_CASE("whole lines go to files and to the user, unfinished ones wait") {
  Routed routed({});
  CHECK(routed.write(1, kOut, "one\ntw") ==
        "keep 1 [1]<stdout>:one\nshow 1 [1]<stdout>:one\nconsumed 1 6\n");
  CHECK(routed.write(1, kOut, "o") == "consumed 1 1\n");
  CHECK(routed.router.tagger(1, kOut).held() == "two");
  routed.router.end(1, kOut, routed.now);
  CHECK(routed.sinks.take() == "keep 1 [1]<stdout>:two\nlast two: [1]<stdout>:two\n");
  CHECK(routed.write(2, kErr, "bar\r") == "keep 2 [2]<stderr>:bar\rconsumed 2 4\n");
}

TEST_CASE("ranks that are not shown are kept") {
  Routed routed({.is_shown = {true, false}});
  CHECK(routed.write(1, kErr, "x\n") == "keep 1 [1]<stderr>:x\nconsumed 1 2\n");
  CHECK(routed.router.last_errors(1) == "[1]<stderr>:x\n");
  CHECK_FALSE(routed.router.is_shown(3));
}

TEST_CASE("the caller's time stands before the tag") {
  Routed json({.format = LineFormat::kJson});
  CHECK(json.write(0, kOut, "x\n")
            .find("show 0 {\"time\":\"1970-01-01T00:00:00.000Z\",\"rank\":0,\"host\":\"a\",") !=
        std::string::npos);
  Routed dated({.has_timestamps = true});
  CHECK(dated.write(0, kOut, "x\n").find(" 1970[0]<stdout>:x") != std::string::npos);
  Routed named({.tag = "{time} {host}"});
  named.now.wall += std::chrono::milliseconds(7);
  CHECK(named.write(2, kOut, "x\n").find("00.007 b: x") != std::string::npos);
}

TEST_CASE("tags have colors by stream") {
  Routed routed({.colors_stderr = true});
  CHECK(routed.write(0, kOut, "x\n") ==
        "keep 0 [0]<stdout>:x\nshow 0 [0]<stdout>:x\nconsumed 0 2\n");
  const std::string line = cat("\x1b[36m[0]<stderr>:", kColorEnd, "x\n");
  CHECK(routed.write(0, kErr, "x\n") ==
        cat("keep 0 colored ", line, "show 0 ", line, "consumed 0 2\n"));
}

TEST_CASE("equal lines are one, when all have said them or time has passed") {
  Routed routed({.folds = true});
  CHECK(routed.write(0, kOut, "x\n") == "keep 0 [0]<stdout>:x\n");
  for (const int rank : {1, 2}) routed.write(rank, kOut, "x\n");
  CHECK(routed.write(3, kOut, "x\n") ==
        "keep 3 [3]<stdout>:x\nshow -1 [0-3]<stdout>:x\nconsumed 0 2\nconsumed 1 2\nconsumed 2 "
        "2\nconsumed 3 2\n");
  routed.write(2, kOut, "y\n");
  CHECK(routed.wait(kFoldFor - std::chrono::milliseconds(1)).empty());
  CHECK(routed.wait(std::chrono::milliseconds(1)) == "show 2 [2]<stdout>:y\nconsumed 2 2\n");
  CHECK(routed.router.due() == Clock::time_point::max());
  routed.write(1, kErr, "z\n");
  routed.router.unfold(kErr, true, routed.now);
  CHECK(routed.sinks.take() == "show 1 [1]<stderr>:z\nconsumed 1 2\n");
}

TEST_CASE("a traceback is held back until it is known whether another rank has caused it") {
  Routed routed({.folds_tracebacks = true});
  const std::string error = cat(kTraceback, "ValueError: bad\n");
  CHECK(routed.write(1, kErr, error).ends_with(cat("consumed 1 ", error.size(), "\n")));
  CHECK(routed.router.is_holding_back(1, kErr));
  CHECK_FALSE(routed.router.is_holding_back(1, kOut));
  SUBCASE("it is shown when the rank has ended") {
    routed.router.rank_ended(1, {.is_failure = true}, routed.now.time);
    routed.router.end(1, kErr, routed.now);
    CHECK(routed.wait(std::chrono::milliseconds(20)).find("ValueError: bad\n") !=
          std::string::npos);
  }
  SUBCASE("it is shown when it has waited enough") {
    CHECK(routed.wait(kHeldFor).find("[1]<stderr>:ValueError: bad\n") != std::string::npos);
  }
  SUBCASE("it is shown when the job has ended") {
    routed.router.settle_tracebacks(true, routed.now);
    CHECK(routed.sinks.take().find("[1]<stderr>:ValueError: bad\n") != std::string::npos);
  }
  CHECK(routed.router.last_exception(1) == "ValueError: bad");
}

TEST_CASE("ranks that come later have channels") {
  Routed routed({.folds = true});
  routed.hosts.add({"c", "", 1}, {{.rank = 4, .host = 2}});
  routed.router.grow();
  for (const int rank : {0, 1, 2, 3}) routed.write(rank, kOut, "x\n");
  CHECK(routed.write(4, kOut, "x\n").find("show -1 [0-4]<stdout>:x\n") != std::string::npos);
}

}  // namespace hvd::launcher
