#include "launcher/output/terminal.h"

#include <doctest/doctest.h>

#include <array>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr const char* kErasedRow = "\r\x1b[K";

// A terminal with a simulated clock: rank 0 asks on stream 0, ranks 1 and 2 never ask.
struct FakeTerminal : TerminalPort {
  FakeTerminal() {
    for (size_t stream = 0; stream < taggers.size(); ++stream)
      terminal.add(OutputStream::kStdout, taggers[stream], stream == 0);
  }
  void put(OutputStream, std::string_view bytes, std::function<void()> written) override {
    text += bytes;
    if (written) written();
  }
  TerminalSize size() const override { return {}; }
  bool is_in_foreground() const override { return in_foreground; }
  bool has_waiting_bytes() const override { return false; }
  bool is_holding_back(size_t) const override { return false; }
  Clock::time_point now() const override { return time; }
  void wake_by(Clock::time_point) override {}

  void write(size_t stream, std::string_view bytes) {
    std::string lines;
    const std::string prefix = taggers[stream].prefix();
    taggers[stream].feed(bytes, lines);
    lines = terminal.take_bars(stream, prefix, lines);
    if (!lines.empty()) terminal.show(stream, prefix, lines);
    terminal.await_end(stream);
  }
  void end(size_t stream) {
    std::string lines;
    const std::string prefix = taggers[stream].prefix(), held = taggers[stream].held();
    taggers[stream].finish(lines);
    terminal.show_last(stream, prefix, lines, held);
    terminal.leave(stream);
  }
  void wait(std::chrono::milliseconds duration = std::chrono::milliseconds(300)) {
    const Clock::time_point until = time + duration;
    for (; terminal.due() <= until; terminal.on_time()) time = terminal.due();
    time = until;
  }
  // Returns the output since the last call.
  std::string take() { return std::exchange(text, {}); }

  std::array<LineTagger, 3> taggers{LineTagger("0:"), LineTagger("1:"), LineTagger("2:")};
  Clock::time_point time{std::chrono::hours(1)};
  bool in_foreground = true;
  std::string text;
  Terminal terminal{*this, true};
};

std::string drawn_line(std::string_view line) {
  return cat("\x1b[0m\x1b[?7l", line, "\x1b[K\x1b[?7h");
}

// Moves the terminal to a state. Stream 0 owns the row in kOpenLine and kBar, and the question
// above the row in kQuestion.
void enter(FakeTerminal& fake, CursorState cursor) {
  if (cursor == CursorState::kOpenLine || cursor == CursorState::kQuestion) {
    fake.write(0, "name? ");
    fake.wait();
  }
  if (cursor == CursorState::kQuestion) fake.write(1, "line\n");
  if (cursor == CursorState::kBar)
    fake.write(0, "\x1b[A50%\r");  // moves the cursor: the status area cannot show it
  if (cursor == CursorState::kArea) {
    fake.terminal.show_status("status");
    fake.wait();
  }
  REQUIRE(fake.terminal.cursor() == cursor);
  fake.take();
}

struct Case {
  const char* name;
  void (*happen)(FakeTerminal&);
  // Indexed by the state before: the terminal's output, and its state afterwards.
  struct {
    std::string bytes;
    CursorState then;
  } from_start, from_question, from_open_line, from_bar, from_area;
};

}  // namespace

TEST_CASE("a row is left by the bytes of the table") {
  const auto row = [](CursorState cursor) {
    return std::array{
        bytes_to_leave(cursor, Leave::kForLine), bytes_to_leave(cursor, Leave::kGoesOn),
        bytes_to_leave(cursor, Leave::kTakenBack), bytes_to_leave(cursor, Leave::kStays)};
  };
  using Row = std::array<std::string_view, 4>;
  for (const CursorState cursor :
       {CursorState::kLineStart, CursorState::kQuestion, CursorState::kArea})
    CHECK(row(cursor) == Row{"", "", "", ""});
  CHECK(row(CursorState::kOpenLine) == Row{"\n", "", kErasedRow, "\n"});
  CHECK(row(CursorState::kBar) == Row{"", "", kErasedRow, "\n"});
}

TEST_CASE("each event in each state of the cursor") {
  const std::string erased = "\r\x1b[J";
  const Case cases[] = {
      {"a line of another rank",
       [](FakeTerminal& fake) { fake.write(2, "x\n"); },
       {"2:x\n", CursorState::kLineStart},
       {"2:x\n", CursorState::kQuestion},
       {"\n2:x\n", CursorState::kQuestion},
       {"2:x\n", CursorState::kLineStart},
       {erased + "2:x\n", CursorState::kLineStart}},
      {"the rest of the line",
       [](FakeTerminal& fake) { fake.write(0, "x\n"); },
       {"0:x\n", CursorState::kLineStart},
       {"0:x\n",
        CursorState::kLineStart},  // with the tag again: another line has ended the question
       {"x\n", CursorState::kLineStart},
       {"0:x\n", CursorState::kLineStart},
       {erased + "0:x\n", CursorState::kLineStart}},
      {"a bar that moves the cursor",
       [](FakeTerminal& fake) { fake.write(2, "\x1b[Ax\r"); },
       {"2:\x1b[Ax\r", CursorState::kBar},
       {"2:\x1b[Ax\r", CursorState::kBar},
       {"\n2:\x1b[Ax\r", CursorState::kBar},
       {"2:\x1b[Ax\r", CursorState::kBar},
       {erased + "2:\x1b[Ax\r", CursorState::kBar}},
      {"a bar in the place of an unfinished line",
       [](FakeTerminal& fake) {
         fake.write(0, "9%\r");
         fake.wait();
       },
       {drawn_line("0:9%"), CursorState::kArea},
       {drawn_line("0:name? 9%"), CursorState::kArea},
       {kErasedRow + drawn_line("0:name? 9%"), CursorState::kArea},
       {"", CursorState::kBar},
       {erased + drawn_line("0:9%\x1b[K\r\nstatus"), CursorState::kArea}},
      {"a line without an end",
       [](FakeTerminal& fake) {
         fake.write(0, "x");
         fake.wait();
       },
       {"0:x", CursorState::kOpenLine},
       {"0:x", CursorState::kOpenLine},
       {"x", CursorState::kOpenLine},
       {"0:x", CursorState::kOpenLine},
       {erased + "0:x", CursorState::kOpenLine}},
      {"a line of the launcher",
       [](FakeTerminal& fake) { fake.terminal.begin_line(); },
       {"", CursorState::kLineStart},
       {"", CursorState::kQuestion},
       {"\n", CursorState::kQuestion},
       {"", CursorState::kLineStart},
       {erased, CursorState::kLineStart}},
      {"a line that several ranks have said",
       [](FakeTerminal& fake) {
         fake.terminal.show_folded(OutputStream::kStdout, "[0-1]:x\r", {});
       },
       {"[0-1]:x\r", CursorState::kBar},
       {"[0-1]:x\r", CursorState::kBar},
       {"\n[0-1]:x\r", CursorState::kBar},
       {"[0-1]:x\r", CursorState::kBar},
       {erased + "[0-1]:x\r", CursorState::kBar}},
      {"the user's newline",
       [](FakeTerminal& fake) { fake.terminal.line_was_typed(); },
       {"", CursorState::kLineStart},
       {"", CursorState::kLineStart},
       {"", CursorState::kLineStart},
       {"", CursorState::kBar},
       {"\r\x1b[1A\x1b[J", CursorState::kLineStart}},
      {"^C",
       [](FakeTerminal& fake) { fake.terminal.end_typed_line(); },
       {"\n", CursorState::kLineStart},
       {"\n", CursorState::kQuestion},
       {"\n", CursorState::kQuestion},
       {"\n", CursorState::kBar},
       {erased, CursorState::kLineStart}},
      {"the end of its stream",
       [](FakeTerminal& fake) { fake.terminal.leave(0); },
       {"", CursorState::kLineStart},
       {"", CursorState::kLineStart},
       {"\n", CursorState::kLineStart},
       {"\n", CursorState::kLineStart},
       {"", CursorState::kArea}},
      {"the end of another stream",
       [](FakeTerminal& fake) { fake.terminal.leave(2); },
       {"", CursorState::kLineStart},
       {"", CursorState::kQuestion},
       {"", CursorState::kOpenLine},
       {"", CursorState::kBar},
       {"", CursorState::kArea}},
      {"a status line",
       [](FakeTerminal& fake) {
         fake.terminal.show_status("up");
         fake.wait();
       },
       {drawn_line("up"), CursorState::kArea},
       {"", CursorState::kQuestion},
       {"", CursorState::kOpenLine},
       {"", CursorState::kBar},
       {erased + drawn_line("up"), CursorState::kArea}},
      {"no status line",
       [](FakeTerminal& fake) { fake.terminal.show_status(""); },
       {"", CursorState::kLineStart},
       {"", CursorState::kQuestion},
       {"", CursorState::kOpenLine},
       {"", CursorState::kBar},
       {erased, CursorState::kLineStart}},
      {"another program",
       [](FakeTerminal& fake) { fake.terminal.withdraw_area(); },
       {"", CursorState::kLineStart},
       {"", CursorState::kQuestion},
       {"", CursorState::kOpenLine},
       {"", CursorState::kBar},
       {erased, CursorState::kLineStart}},
  };
  for (const Case& each : cases) {
    CAPTURE(each.name);
    const auto check = [&](CursorState before, const auto& expected) {
      CAPTURE(static_cast<int>(before));
      FakeTerminal fake;
      enter(fake, before);
      each.happen(fake);
      CHECK(fake.take() == expected.bytes);
      CHECK(fake.terminal.cursor() == expected.then);
    };
    check(CursorState::kLineStart, each.from_start);
    check(CursorState::kQuestion, each.from_question);
    check(CursorState::kOpenLine, each.from_open_line);
    check(CursorState::kBar, each.from_bar);
    check(CursorState::kArea, each.from_area);
  }
}

TEST_CASE("the area waits for an answer, and comes back behind other lines") {
  FakeTerminal fake;
  enter(fake, CursorState::kArea);
  fake.write(0, "name? ");
  fake.wait();
  CHECK(fake.take() == "\r\x1b[J0:name? ");
  CHECK_FALSE(fake.terminal.has_status());
  fake.write(1, "x\n");
  fake.wait();
  CHECK(fake.take() == "\n1:x\n");
  fake.terminal.line_was_typed();
  CHECK(fake.terminal.has_status());
  fake.wait();
  CHECK(fake.take() == drawn_line("status"));
}

TEST_CASE("a bar of the background moves into the area when the launcher is in the foreground") {
  FakeTerminal fake;
  fake.in_foreground = false;
  fake.write(1, "50%\r");
  CHECK(fake.take() == "1:50%\r");
  CHECK(fake.terminal.cursor() == CursorState::kBar);
  fake.in_foreground = true;
  SUBCASE("its own next state erases it") {
    fake.write(1, "60%\r");
    CHECK(fake.take() == kErasedRow + drawn_line("1:60%"));
  }
  SUBCASE("beside the bar of another rank it stays") {
    fake.write(2, "10%\r");
    CHECK(fake.take() == "\n" + drawn_line("2:10%"));
  }
}

TEST_CASE("bars become lines in the background and at the end") {
  FakeTerminal fake;
  fake.write(1, "50%\r");
  fake.take();
  SUBCASE("in the background") {
    fake.in_foreground = false;
    fake.terminal.end_hidden_bars();
  }
  SUBCASE("at the end") { fake.terminal.finish(); }
  SUBCASE("when its stream ends without an end of the line") { fake.terminal.leave(1); }
  CHECK(fake.take() == "\r\x1b[J1:50%\n");
  fake.wait();
  CHECK(fake.take().empty());
}

TEST_CASE("a text that clears a bar is no last line") {
  FakeTerminal fake;
  fake.write(1, "50%\r   \r");
  CHECK(fake.take().empty());  // the line was never drawn
  fake.write(1, "  ");
  fake.end(1);
  CHECK(fake.take().empty());
}

}  // namespace hvd::launcher
