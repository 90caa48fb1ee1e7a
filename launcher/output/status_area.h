// The lines below the output of ranks on a terminal: the progress bars of ranks, and the status line. Composes what
// shows and erases them, and knows what the terminal shows. Terminal owns one. Pure.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/terminal_text.h"

namespace hvd::launcher {

// More ranks with a progress bar are counted.
inline constexpr size_t kMostBars = 4;

class StatusArea {
 public:
  // The columns of a row. Behind a line that fills the last one, the cursor may be in the next row, as it may be behind
  // the echo of ^C.
  static size_t room(size_t columns);
  // Empty: no line.
  void set_line(std::string_view line) { line_ = line; }
  // `key`: of the stream that shows the bar; `text`: with the prefix, without its '\r'.
  void set_bar(size_t key, std::string_view text) { bars_[key] = text; }
  bool has_bar(size_t key) const { return bars_.contains(key); }
  // Ends a bar. Returns its text, or an empty one.
  std::string take_bar(size_t key);
  // Ends all bars: lines with their newlines.
  std::string take_bars();

  // Whether there is anything to show.
  bool is_empty() const { return line_.empty() && bars_.empty(); }
  // Whether the terminal shows it.
  bool is_shown() const { return rows() > 0; }
  // The rows that the terminal shows.
  size_t rows() const { return widths_.size(); }
  // The bytes that replace what is shown, or an empty text if it is up to date. `size`: of the terminal.
  std::string show(TerminalSize size);
  // The bytes that erase it, and leave the cursor where the next line of output begins. `columns`: of the terminal now;
  // `below`: lines that the user has ended below it.
  std::string erase(size_t columns, size_t below = 0);
  // The terminal has other lines below it: they stay.
  void forget() { widths_.clear(); }

 private:
  // The bars and the line, cut to the width of the terminal.
  std::vector<std::string> rows_for(TerminalSize size) const;
  std::string line_;
  std::map<size_t, std::string> bars_;
  std::string shown_;
  std::vector<size_t> widths_;  // of the rows that the terminal shows
  TerminalSize size_{};         // of the terminal then
};

// Whether the terminal shows the area, for threads that write to the terminal without its owner.
class AreaOnTerminal {
 public:
  void set_shown(bool is_shown) { state_ = is_shown ? State::kShown : State::kErased; }
  // Another thread is about to write. Returns the bytes that erase the last row of the area.
  std::string interrupt() {
    State shown = State::kShown;
    return state_.compare_exchange_strong(shown, State::kInterrupted) ? "\r\x1b[K" : "";
  }
  bool was_interrupted() const { return state_ == State::kInterrupted; }

 private:
  enum class State { kErased, kShown, kInterrupted };
  std::atomic<State> state_ = State::kErased;
};

// Whether a text that ends in '\r' can be moved to another line: it has no control characters but colors and the
// sequence that erases the rest of its line.
bool is_movable_bar(std::string_view text);
// Whether a text, without its prefix, is how a program clears its bar: spaces, sequences that erase, and colors.
bool is_cleared_bar(std::string_view text);
// Whether a text is empty, or has only sequences for colors: a bar stays as it is.
bool is_of_colors(std::string_view text);
// Returns the escape sequences for colors in a movable bar.
std::string colors_in(std::string_view text);

}  // namespace hvd::launcher
