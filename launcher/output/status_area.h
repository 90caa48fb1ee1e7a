// The lines below the output of ranks on a terminal: the progress bars of ranks, and the status line. Composes the
// bytes that show and erase them, and tracks which rows the terminal shows. Class Terminal owns this object. Pure.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/terminal_text.h"

namespace hvd::launcher {

// The maximum number of shown bars. Further ranks with a progress bar are only counted.
inline constexpr size_t kMostBars = 4;

class StatusArea {
 public:
  // Returns the usable columns of a row. After a line that fills the last column, or after the echo of ^C, the cursor
  // may be in the next row.
  static size_t room(size_t columns);
  // Sets the status line. An empty text removes it.
  void set_line(std::string_view line) { line_ = line; }
  // Adds or changes a bar. `key`: the stream of the bar; `text`: with the prefix, without its '\r'.
  void set_bar(size_t key, std::string_view text) { bars_[key] = text; }
  bool has_bar(size_t key) const { return bars_.contains(key); }
  // Ends a bar. Returns its text, which may be empty.
  std::string take_bar(size_t key);
  // Ends all bars. Returns them as lines with newlines.
  std::string take_bars();

  bool is_empty() const { return line_.empty() && bars_.empty(); }
  bool is_shown() const { return rows() > 0; }
  // Returns the number of rows that the terminal shows.
  size_t rows() const { return widths_.size(); }
  // Returns the bytes that replace the shown rows, or an empty text if the rows are up to date. `size`: of the
  // terminal.
  std::string show(TerminalSize size);
  // Returns the bytes that erase the area, and leave the cursor at the start of the next output line. `columns`:
  // current width of the terminal; `below`: number of lines that the user has ended below the area.
  std::string erase(size_t columns, size_t below = 0);
  // Call when other lines have been written below the area, so that its rows must stay.
  void forget() { widths_.clear(); }

 private:
  // Returns the bars and the status line, cut to the width of the terminal.
  std::vector<std::string> rows_for(TerminalSize size) const;
  std::string line_;
  std::map<size_t, std::string> bars_;
  std::string shown_;
  std::vector<size_t> widths_;  // widths of the shown rows
  TerminalSize size_{};         // size of the terminal when the rows were shown
};

// Tracks whether the terminal shows the area, for threads that write to the terminal without its owner.
class AreaOnTerminal {
 public:
  void set_shown(bool is_shown) { state_ = is_shown ? State::kShown : State::kErased; }
  // Call when another thread is about to write. Returns the bytes that it must write first, to erase the last row of
  // the area.
  std::string interrupt() {
    State shown = State::kShown;
    return state_.compare_exchange_strong(shown, State::kInterrupted) ? "\r\x1b[K" : "";
  }
  bool was_interrupted() const { return state_ == State::kInterrupted; }

 private:
  enum class State { kErased, kShown, kInterrupted };
  std::atomic<State> state_ = State::kErased;
};

// Returns whether a text that ends in '\r' may move to another line. Its only control characters are then colors and
// the sequence that erases the rest of its line.
bool is_movable_bar(std::string_view text);
// Returns whether a text, without its prefix, clears a program's bar: spaces, erase sequences, and colors.
bool is_cleared_bar(std::string_view text);
// Returns whether a text is empty or has only color sequences. Such a text leaves a bar unchanged.
bool is_of_colors(std::string_view text);
// Returns the escape sequences for colors in a movable bar.
std::string colors_in(std::string_view text);

}  // namespace hvd::launcher
