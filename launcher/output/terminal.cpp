#include "launcher/output/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <utility>

#include "base/limits/last_resort.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr int kDeadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT, SIGSYS, SIGTRAP};

// The function that the signal handler calls.
std::atomic<void (*)()> restore_now = nullptr;

// SA_RESETHAND has restored the default action of the signal.
void restore_and_die(int number) {
  if (const auto restore = restore_now.exchange(nullptr)) restore();
  ::raise(number);
}

std::atomic<size_t> rows_to_erase = 0;

// Async-signal-safe.
void erase_rows() {
  constexpr std::string_view kBegin = "\x1b[?7h\r", kUp = "\x1b[A", kErase = "\x1b[J";
  std::array<char, 64> bytes{};
  const size_t rows = rows_to_erase.exchange(0);
  if (rows == 0) return;
  char* end = std::ranges::copy(kBegin, bytes.begin()).out;
  for (size_t row = 1; row < rows && end + kUp.size() + kErase.size() <= bytes.end(); ++row)
    end = std::ranges::copy(kUp, end).out;
  end = std::ranges::copy(kErase, end).out;
  [[maybe_unused]] const ssize_t size =
      ::write(STDERR_FILENO, bytes.data(), static_cast<size_t>(end - bytes.begin()));
}

// The time for which a line without an end waits for the rest of the line.
constexpr std::chrono::milliseconds kShownAfter{100};
// The interval between two drawings of the status line and of progress bars.
constexpr std::chrono::milliseconds kDrawnEach{250};
// The delay between output and the drawing of the area. Lines that arrive together then precede the area.
constexpr std::chrono::milliseconds kDrawnAfter{20};

// Returns the last line of a text that ends in '\r', without the '\r'.
std::string_view last_row(std::string_view lines) {
  lines.remove_suffix(1);
  return lines.substr(lines.find_last_of("\r\n") + 1);
}

}  // namespace

void erase_at_death(size_t rows) {
  rows_to_erase = rows;
  if (rows > 0 && restore_now != erase_rows) restore_at_death(erase_rows);
}

void restore_at_death(void (*restore)()) {
  before_last_words(restore);
  if (restore_now.exchange(restore) != nullptr || restore == nullptr) return;
  struct sigaction action {};
  action.sa_handler = restore_and_die;
  action.sa_flags = SA_RESETHAND;
  for (const int number : kDeadly) {
    struct sigaction before {};
    // Keep a signal that is ignored or has a sanitizer's handler.
    if (::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_DFL)
      ::sigaction(number, &action, nullptr);
  }
}

std::string_view bytes_to_leave(CursorState cursor, Leave how) {
  const bool is_open = cursor == CursorState::kOpenLine, is_bar = cursor == CursorState::kBar;
  if (how == Leave::kTakenBack && (is_open || is_bar)) return "\r\x1b[K";
  if (how == Leave::kStays && (is_open || is_bar)) return "\n";
  return how == Leave::kForLine && is_open ? "\n" : "";
}

void Terminal::leave_row(Leave how, size_t below) {
  std::string bytes(bytes_to_leave(cursor_, how));
  OutputStream to = OutputStream::kStderr;
  if (cursor_ == CursorState::kArea) {
    if (area_state_->was_interrupted()) area_.forget();
    area_state_->set_shown(false);
    erase_at_death(0);
    bytes = area_.erase(port_.size().columns, below);
  } else if (owner_) {
    to = streams_[*owner_].to;
  }
  if (!bytes.empty()) port_.put(to, bytes, {});
  cursor_ = at_start();
  owner_.reset();
}

void Terminal::begin(Leave how, size_t below) {
  leave_row(how, below);
  // The area is drawn later, below the output that the caller is about to write.
  if (has_area_ && !area_.is_empty() && draws_at_ == Clock::time_point::max())
    draw_by(std::max(drawn_ + kDrawnEach, port_.now() + kDrawnAfter));
}

void Terminal::add(OutputStream stream, const LineTagger& tagger, bool asks) {
  if (asks) askers_.push_back(streams_.size());
  streams_.push_back({stream, &tagger, asks});
}

bool Terminal::has_status() const {
  const bool has_place = cursor_ == CursorState::kLineStart || cursor_ == CursorState::kArea;
  return has_area_ && has_place && port_.is_in_foreground();
}

void Terminal::forget_question(size_t stream) {
  if (asker_ != stream) return;
  asker_.reset();
  if (cursor_ == CursorState::kQuestion) cursor_ = CursorState::kLineStart;
}

void Terminal::show(size_t stream, std::string_view prefix, std::string_view lines,
                    std::function<void()> written) {
  Stream& from = streams_[stream];
  from.has_cleared = false;
  const bool goes_on = cursor_ == CursorState::kOpenLine && owner_ == stream;
  forget_question(stream);
  begin(goes_on ? Leave::kGoesOn : Leave::kForLine);
  if (lines.ends_with('\r')) {
    cursor_ = CursorState::kBar;
    owner_ = stream;
    is_bar_movable_ = has_area_ && is_movable_bar(last_row(lines));
  }
  std::string rest;
  if (const size_t shown = std::exchange(from.shown, 0); shown > 0) {
    lines.remove_prefix(prefix.size() + shown);
    // Another line has already ended the stream's unfinished line.
    if (!goes_on && lines.starts_with('\n'))
      lines.remove_prefix(1);
    else if (!goes_on)
      rest = prefix;
  }
  rest += lines;
  if (!rest.empty())
    port_.put(from.to, rest, std::move(written));
  else if (written)
    written();
}

void Terminal::show_last(size_t stream, std::string_view prefix, std::string_view lines,
                         std::string_view held) {
  const Stream& from = streams_[stream];
  const bool is_blank = has_area_ && from.shown == 0 &&
                        (is_of_colors(held) || (from.has_cleared && is_cleared_bar(held)));
  if (is_blank) end_bar(stream);
  area_.take_bar(stream);  // the last line replaces the bar
  if (is_blank)
    write_colors(held);
  else if (!lines.empty())
    show(stream, prefix, lines);
}

void Terminal::show_folded(OutputStream stream, std::string_view line,
                           std::function<void()> written) {
  begin_line();
  if (line.ends_with('\r')) cursor_ = CursorState::kBar;
  is_bar_movable_ = false;
  port_.put(stream, line, std::move(written));
}

void Terminal::await_end(size_t stream) {
  Stream& from = streams_[stream];
  if (!from.asks || from.tagger->held().size() <= from.shown) return;
  if (from.due != Clock::time_point::max()) return;
  from.due = port_.now() + kShownAfter;
  port_.wake_by(from.due);
}

void Terminal::show_unfinished(size_t stream) {
  Stream& from = streams_[stream];
  const std::string& held = from.tagger->held();
  if (held.size() <= from.shown || port_.is_holding_back(stream)) return;
  if (has_area_ && from.shown == 0) {
    if (is_of_colors(held)) return write_colors(held);
    if (from.has_cleared && is_cleared_bar(held)) return;
  }
  if (area_.has_bar(stream)) {
    if (is_movable_bar(held)) return;  // the bar shows the text
    end_bar(stream);
  }
  const bool goes_on = cursor_ == CursorState::kOpenLine && owner_ == stream;
  begin(goes_on ? Leave::kGoesOn : Leave::kForLine);
  port_.put(from.to, cat(goes_on ? "" : from.tagger->prefix(), held.substr(from.shown)), {});
  from.shown = held.size();
  cursor_ = CursorState::kOpenLine;
  owner_ = asker_ = stream;
}

void Terminal::leave(size_t stream) {
  end_bar(stream);
  forget_question(stream);
  if (owner_ == stream && (cursor_ == CursorState::kOpenLine || has_area_))
    leave_row(Leave::kStays);
}

void Terminal::line_was_typed() {
  asker_.reset();
  if (cursor_ != CursorState::kBar) begin(Leave::kGoesOn, 1);
}

void Terminal::end_typed_line() {
  if (cursor_ == CursorState::kArea) return begin_line();  // the cursor is behind the line
  if (cursor_ == CursorState::kOpenLine) return leave_row(Leave::kStays);
  port_.put(OutputStream::kStderr, "\n", {});
}

std::string Terminal::take_bars(size_t stream, std::string_view prefix, std::string lines) {
  const bool has_bars = lines.find('\r') != std::string::npos || area_.has_bar(stream);
  if (!has_bars || !is_area_visible(stream)) return lines;
  std::string others;
  std::string_view rest = lines;
  bool is_first = true;
  bool begins_bar = false;  // the last line is a lone '\r'
  while (!rest.empty()) {
    const std::string_view line = take_row(rest);
    const bool is_bar = line.ends_with('\r');
    if (!is_bar || !is_movable_bar(line.substr(0, line.size() - 1))) {
      const std::string bar = area_.take_bar(stream);  // this line replaces the bar
      // A lone newline follows the previous '\r', and together they end one line.
      others += is_first && line == "\n" ? cat(bar, line) : std::string(line);
    } else {
      if (is_first && has_begun(stream)) take_back(stream, prefix.size() + streams_[stream].shown);
      set_bar(stream, prefix, line.substr(0, line.size() - 1));
    }
    begins_bar = is_bar && line.size() == prefix.size() + 1;
    is_first = false;
  }
  if (area_.has_bar(stream) || begins_bar) set_held_bar(stream, prefix);
  if (others.empty()) draw_area();
  return others;
}

bool Terminal::is_area_visible(size_t stream) {
  if (!has_area_) return false;
  if (!port_.is_in_foreground()) {
    end_bars();
    return false;
  }
  if (cursor_ == CursorState::kBar && is_bar_movable_)
    leave_row(owner_ == stream ? Leave::kTakenBack : Leave::kStays);
  return true;
}

void Terminal::set_held_bar(size_t stream, std::string_view prefix) {
  const std::string& held = streams_[stream].tagger->held();
  if (is_movable_bar(held) && !is_of_colors(held)) set_bar(stream, prefix, cat(prefix, held));
}

void Terminal::set_bar(size_t stream, std::string_view prefix, std::string_view text) {
  Stream& from = streams_[stream];
  const std::string_view rest = text.substr(text.starts_with(prefix) ? prefix.size() : 0);
  if (is_of_colors(rest) && area_.has_bar(stream)) {
    const std::string bar = area_.take_bar(stream);
    area_.set_bar(stream, bar.ends_with(rest) ? bar : cat(bar, rest));
  } else if (is_of_colors(rest) || is_cleared_bar(rest)) {
    from.has_cleared |= !area_.take_bar(stream).empty();
    write_colors(rest);
  } else {
    from.has_cleared = false;
    area_.set_bar(stream, text);
  }
}

void Terminal::write_colors(std::string_view text) {
  const std::string colors = colors_in(text);
  if (!colors.empty()) port_.put(OutputStream::kStdout, colors, {});
}

void Terminal::take_back(size_t stream, size_t width) {
  forget_question(stream);
  streams_[stream].shown = 0;
  if (cursor_ != CursorState::kOpenLine || owner_ != stream) return;  // the open line has ended
  leave_row(width < port_.size().columns ? Leave::kTakenBack : Leave::kStays);
}

// Writes the bar once as a line, in its last state.
void Terminal::end_bar(size_t stream) {
  const std::string text = area_.take_bar(stream);
  if (!text.empty()) show(stream, "", text + "\n");
}

void Terminal::end_bars() {
  const std::string bars = area_.take_bars();
  if (bars.empty()) return;
  begin_line();
  port_.put(OutputStream::kStdout, bars, {});
}

void Terminal::end_hidden_bars() {
  if (has_area_ && !port_.is_in_foreground()) end_bars();
}

void Terminal::show_status(std::string_view line) {
  if (!has_area_) return;
  status_ = line;
  area_.set_line(alarm_.empty() ? status_ : alarm_);
  draw_area();
}

void Terminal::show_alarm(std::string_view line) {
  if (alarm_ == line) return;
  alarm_ = line;
  show_status(std::string(status_));
}

void Terminal::draw_by(Clock::time_point time) {
  draws_at_ = time;
  port_.wake_by(time);
}

void Terminal::draw_area() {
  if (!has_area_ || draws_at_ != Clock::time_point::max()) return;
  if (cursor_ != CursorState::kLineStart && cursor_ != CursorState::kArea) return;
  if (area_.is_empty()) {
    if (cursor_ == CursorState::kArea) begin_line();
    return;
  }
  const Clock::time_point next = drawn_ + kDrawnEach;
  if (next > port_.now()) return draw_by(next);
  // A terminal that accepts no output now is drawn later, with the newest state.
  if (port_.has_waiting_bytes() || !port_.is_in_foreground()) return;
  if (area_state_->was_interrupted()) area_.forget();
  const std::string bytes = area_.show(port_.size());
  if (bytes.empty()) return;
  cursor_ = CursorState::kArea;
  area_state_->set_shown(true);
  erase_at_death(area_.rows());
  drawn_ = port_.now();
  port_.put(OutputStream::kStderr, bytes, {});
}

void Terminal::withdraw_area() {
  if (cursor_ == CursorState::kArea) leave_row(Leave::kForLine);
}

void Terminal::finish() {
  area_.set_line("");
  begin_line();
  end_bars();
}

Clock::time_point Terminal::due() const {
  Clock::time_point due = draws_at_;
  for (const size_t stream : askers_) due = std::min(due, streams_[stream].due);
  return due;
}

void Terminal::on_time() {
  const Clock::time_point due = this->due();
  for (const size_t stream : askers_) {
    if (streams_[stream].due != due) continue;
    streams_[stream].due = Clock::time_point::max();
    return show_unfinished(stream);
  }
  draws_at_ = Clock::time_point::max();
  draw_area();
}

}  // namespace hvd::launcher
