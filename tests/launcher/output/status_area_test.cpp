#include "launcher/output/status_area.h"

#include <doctest/doctest.h>

#include <chrono>

#include "base/text.h"
#include "launcher/output/launch_progress.h"
#include "launcher/output/terminal_text.h"

namespace hvd::launcher {

namespace {

constexpr TerminalSize kSmall{.columns = 20};

// Adds the escape sequences around each drawing.
std::string drawn(std::string_view lines) { return cat("\x1b[0m\x1b[?7l", lines, "\x1b[?7h"); }

}  // namespace

TEST_CASE("the status line replaces itself, and is erased before output") {
  StatusArea area;
  CHECK(area.show(kSmall).empty());
  area.set_line("one");
  CHECK(area.show(kSmall) == drawn("one\x1b[K"));
  CHECK(area.is_shown());
  CHECK(area.show(kSmall).empty());  // nothing changed
  area.set_line("a line that is too long");
  CHECK(area.show(kSmall) == cat("\r\x1b[J", drawn("a line that is to\x1b[K")));
  CHECK(area.erase(20) == "\r\x1b[J");
  CHECK(area.erase(20).empty());
}

TEST_CASE("four bars stand above the line, and the others are counted") {
  StatusArea area;
  area.set_line("status");
  for (size_t rank = 0; rank < 64; ++rank) area.set_bar(rank, "50%");
  CHECK(
      area.show({}) ==
      drawn(
          "50%\x1b[K\r\n50%\x1b[K\r\n50%\x1b[K\r\n50%\x1b[K\r\nand 60 more\x1b[K\r\nstatus\x1b[K"));
  CHECK(area.erase(80, 1) == "\r\x1b[6A\x1b[J");
  CHECK(area.take_bar(3) == "50%");
  CHECK_FALSE(area.has_bar(3));
  CHECK(area.take_bar(3).empty());
}

TEST_CASE("a low terminal keeps a row for output") {
  StatusArea area;
  area.set_line("status");
  for (size_t rank = 0; rank < 3; ++rank) area.set_bar(rank, "50%");
  CHECK(area.show({.rows = 5}) == drawn("50%\x1b[K\r\n50%\x1b[K\r\n50%\x1b[K\r\nstatus\x1b[K"));
  area.set_bar(3, "50%");
  CHECK(
      area.show({.rows = 5}) ==
      cat("\r\x1b[3A\x1b[J", drawn("50%\x1b[K\r\n50%\x1b[K\r\nand 2 more\x1b[K\r\nstatus\x1b[K")));
  CHECK(area.show({.rows = 2}) == cat("\r\x1b[3A\x1b[J", drawn("status\x1b[K")));
  CHECK(area.erase(80) == "\r\x1b[J");
}

TEST_CASE("rows that a narrower terminal has wrapped are erased, too") {
  StatusArea area;
  area.set_line(std::string(70, 'x'));
  area.set_bar(0, "\x1b[36m50%\x1b[0m");
  CHECK_FALSE(area.show({}).empty());
  CHECK(area.erase(80) == "\r\x1b[1A\x1b[J");
  CHECK_FALSE(area.show({}).empty());
  CHECK(area.show({.columns = 30}).starts_with("\r\x1b[3A\x1b[J"));
  CHECK(area.erase(10) == "\r\x1b[3A\x1b[J");
}

TEST_CASE("other lines below the area stay") {
  StatusArea area;
  AreaOnTerminal state;
  CHECK(state.interrupt().empty());
  area.set_line("status");
  area.set_bar(0, "50%");
  CHECK_FALSE(area.show({}).empty());
  state.set_shown(true);
  CHECK(state.interrupt() == "\r\x1b[K");
  CHECK(state.was_interrupted());
  area.forget();
  CHECK(area.erase(80).empty());
}

TEST_CASE("a bar that moves the cursor stays where its rank writes it") {
  CHECK(is_movable_bar("[0]<stderr>: 50%|\u2588\u2588  | 5/10"));
  CHECK(is_movable_bar("\x1b[36m[0]\x1b[0m 50%\x1b[K"));
  for (const char* text : {"\x1b[A50%", "\x1b[2J", "50%\b", "\x1b]0;x", "\x1b", "\x1b[1"})
    CHECK_FALSE(is_movable_bar(text));
}

TEST_CASE("spaces and sequences that erase clear a bar") {
  for (const char* text : {"      ", "\x1b[K", "\x1b[0m  \x1b[2K"}) CHECK(is_cleared_bar(text));
  for (const char* text : {"", "\x1b[0m", "50%", " \x1b[Kx", "\x1b[A", "\x1b"})
    CHECK_FALSE(is_cleared_bar(text));
}

TEST_CASE("colors alone clear no bar, and are found in what clears one") {
  for (const char* text : {"", "\x1b[0m", "\x1b[0m\x1b[31m"}) CHECK(is_of_colors(text));
  for (const char* text : {" ", "\x1b[K", "\x1b[0mx", "\x1b[0", "\x1b"})
    CHECK_FALSE(is_of_colors(text));
  CHECK(colors_in(" \x1b[0m \x1b[2K\x1b[1;31m") == "\x1b[0m\x1b[1;31m");
}

TEST_CASE("colors take no columns") {
  CHECK(cut_colored("\x1b[36m[0]\x1b[0m50%\x1b[K", 4) == "\x1b[36m[0]\x1b[0m5\x1b[0m");
  CHECK(cut_colored("abc", 2) == "ab");
  CHECK(colored_width_of("\x1b[36m[0]\x1b[0m50%\x1b[K") == 6);
}

TEST_CASE("the line of a job leaves out what is not known and what has no room") {
  JobProgress job{.up = 4, .size = 4, .seconds = 131};
  CHECK(job_line(job, 80, true) == "4/4 ranks \u00b7 00:02:11");
  job.steps_per_second = 12.44;
  job.bytes_per_second = 1.14e9;
  job.slowest = {3, "b", 0.038};
  CHECK(job_line(job, 80, true) ==
        "4/4 ranks \u00b7 12.4 steps/s \u00b7 1.1 GB/s \u00b7 slowest rank 3 (b) +38 ms \u00b7 "
        "00:02:11");
  CHECK(job_line(job, 40, false) == "4/4 ranks | 12.4 steps/s | 00:02:11");
  CHECK(job_line(job, 5, false) == "4/4 r");
  const std::string colors = job_line(job, 80, false, true);
  CHECK(colors.find(" | \x1b[33mslowest rank 3 (b) +38 ms\x1b[0m | 00:02:11") != std::string::npos);
  CHECK(colored_width_of(colors) == job_line(job, 80, false).size());
  for (size_t columns = 1; columns < 80; ++columns)
    CHECK(colored_width_of(job_line(job, columns, false, true)) ==
          job_line(job, columns, false).size());
}

TEST_CASE("rates are those of the last seconds, and begin anew with the counts") {
  using std::chrono::seconds;
  ProgressRates rates;
  const auto now = Clock::now();
  rates.add(now, {.ranks = 4});
  CHECK_FALSE(rates.steps_per_second());
  rates.add(now + seconds(2), {10, 4000, 4});
  CHECK(rates.steps_per_second() == 5);
  CHECK(rates.bytes_per_second() == 2000);
  rates.add(now + seconds(2), {10, 4000, 4});
  CHECK(rates.steps_per_second() == 5);
  for (int i = 4; i < 40; i += 2) rates.add(now + seconds(i), {10, 4000, 4});
  CHECK(rates.steps_per_second() == 0);
  rates.add(now + seconds(40), {3, 0, 4});
  CHECK_FALSE(rates.steps_per_second());
}

TEST_CASE("a host that does not answer once changes no rate afterwards") {
  using std::chrono::seconds;
  ProgressRates rates;
  const auto now = Clock::now();
  rates.add(now, {10, 4000, 4});
  rates.add(now + seconds(1), {20, 8000, 4});
  CHECK(rates.bytes_per_second() == 4000);
  rates.add(now + seconds(2), {30, 6000, 2});
  CHECK(rates.bytes_per_second() == 4000);
  rates.add(now + seconds(3), {40, 16000, 4});
  CHECK(rates.bytes_per_second() == 4000);
}

TEST_CASE("ranks that are missing for longer have no part in the rates") {
  using std::chrono::seconds;
  ProgressRates rates;
  const auto now = Clock::now();
  rates.add(now, {10, 4000, 4});
  rates.add(now + seconds(1), {20, 8000, 4});
  for (int i = 2; i < 7; ++i)
    rates.add(now + seconds(i),
              {20 + 10 * static_cast<uint64_t>(i), 1000 * static_cast<uint64_t>(i), 2});
  CHECK(rates.bytes_per_second() == 1000);
  rates.add(now + seconds(7), {90, 40000, 4});
  CHECK_FALSE(rates.bytes_per_second());
}

}  // namespace hvd::launcher
