// The launcher's terminal: the lines of ranks, a rank's question, and below them the area with progress bars and the
// status line. Tracks the state of the row with the cursor:
//
//   kLineStart  nothing
//   kQuestion   nothing; in the row above is a question that the user has not answered, so the area waits
//   kOpenLine   an unfinished line, which was shown after a pause because it may be a question
//   kBar        a row that ends in '\r': the next text replaces this row. The area waits
//   kArea       the last row of the area
//
// The cursor leaves the row in one of four ways, and enters kLineStart or, below a question, kQuestion. The bytes are:
//
//                another line    its line goes on   it is taken back   its row stays
//   kLineStart   -               -                  -                  -
//   kQuestion    -               -                  -                  -
//   kOpenLine    newline         -                  erase the row      newline
//   kBar         -               -                  erase the row      newline
//   kArea        erase the area  erase the area     erase the area     erase the area
//
// Then a line of a rank or of the launcher enters kLineStart, kQuestion or, if it ends in '\r', kBar; an unfinished
// line enters kOpenLine. Only from kLineStart, when nothing was written for a moment, the area enters kArea.
//
// Streams are numbered in the order of add(). JobOutput owns this object. Lives on the launch's loop.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/output/line_tagger.h"
#include "launcher/output/status_area.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

// Registers `restore`, which runs when a fatal signal, a failed check or a lack of memory ends the process. It must be
// async-signal-safe. A later call replaces the function; null removes it.
void restore_at_death(void (*restore)());
// Registers the number of rows at the end of the terminal to erase before the process dies. The cursor must be in the
// last row, and standard error must be the terminal. Uses restore_at_death().
void erase_at_death(size_t rows);

enum class CursorState : uint8_t { kLineStart, kQuestion, kOpenLine, kBar, kArea };
enum class Leave : uint8_t { kForLine, kGoesOn, kTakenBack, kStays };
// Returns the bytes of the table above, except the area's bytes.
std::string_view bytes_to_leave(CursorState cursor, Leave how);

// The terminal's output, size and time.
class TerminalPort {
 public:
  virtual ~TerminalPort() = default;
  // `written` is called when the bytes are written; it may be empty.
  virtual void put(OutputStream stream, std::string_view bytes, std::function<void()> written) = 0;
  virtual TerminalSize size() const = 0;
  // Returns whether the launcher is in the terminal's foreground.
  virtual bool is_in_foreground() const = 0;
  virtual bool has_waiting_bytes() const = 0;
  // Returns whether lines of the stream are held back. They must be shown before its unfinished line.
  virtual bool is_holding_back(size_t stream) const = 0;
  virtual Clock::time_point now() const = 0;
  virtual void wake_by(Clock::time_point time) = 0;
};

class Terminal {
 public:
  // `has_area`: both streams are this terminal, and may have an area. The port must outlive this object.
  Terminal(TerminalPort& port, bool has_area) : port_(port), has_area_(has_area) {}

  // Adds a rank's stream. `tagger`: has its unfinished line; must outlive this object. `asks`: that line may be a
  // question.
  void add(OutputStream stream, const LineTagger& tagger, bool asks);
  size_t streams() const { return streams_.size(); }
  CursorState cursor() const { return cursor_; }
  bool has_area() const { return has_area_; }
  // Returns whether the area may be visible: the launcher is in the foreground, and no other output is in its place.
  bool has_status() const;
  // Returns the state of the area, for a thread that writes to the terminal while the loop is blocked.
  std::shared_ptr<AreaOnTerminal> area_on_terminal() const { return area_state_; }

  // Removes progress bars that the area shows from complete lines, and returns the other lines.
  std::string take_bars(size_t stream, std::string_view prefix, std::string lines);
  // Returns whether a part of the stream's unfinished line is shown.
  bool has_begun(size_t stream) const { return streams_[stream].shown > 0; }
  // Shows complete lines of a stream; the terminal may already show a part of the first line, after its prefix.
  void show(size_t stream, std::string_view prefix, std::string_view lines,
            std::function<void()> written = {});
  // Like show(), for the last line, which has no line end. `held`: the unfinished line as the program wrote it. Shows
  // nothing if it has only colors, or blanks that clear a progress bar.
  void show_last(size_t stream, std::string_view prefix, std::string_view lines,
                 std::string_view held);
  // Shows a line that several ranks have written.
  void show_folded(OutputStream stream, std::string_view line, std::function<void()> written);
  // If the stream's unfinished line may be a question, shows it after a pause.
  void await_end(size_t stream);
  // Call when the stream has ended; its bar stays as a line.
  void leave(size_t stream);

  // Clears the row with the cursor, for a line of the launcher.
  void begin_line() { begin(Leave::kForLine); }
  // Call when the user has ended a line on the terminal, after the question.
  void line_was_typed();
  // Call when the terminal has echoed ^C on standard error, without a line end.
  void end_typed_line();
  // Sets the line below the output; empty: no line. A line of show_alarm() replaces this line.
  void show_status(std::string_view line);
  void show_alarm(std::string_view line);
  // Ends the progress bars of ranks as lines if the launcher is in the background, where bars are invisible.
  void end_hidden_bars();
  // Call when the launcher stops, and another program gets the terminal.
  void withdraw_area();
  // Removes the area from the terminal.
  void finish();

  // Returns the next time at which on_time() must be called. on_time() does the work that is due.
  Clock::time_point due() const;
  void on_time();

 private:
  struct Stream {
    OutputStream to;
    const LineTagger* tagger;
    bool asks;
    size_t shown = 0;          // shown bytes of the stream's unfinished line
    bool has_cleared = false;  // the last text of the stream has cleared its bar
    Clock::time_point due = Clock::time_point::max();  // time to show the stream's unfinished line
  };

  CursorState at_start() const { return asker_ ? CursorState::kQuestion : CursorState::kLineStart; }
  // Clears the row with the cursor. `below`: number of lines that the user has ended below the area.
  void leave_row(Leave how, size_t below = 0);
  // Like leave_row(), before other output. The area is drawn again soon below that output.
  void begin(Leave how, size_t below = 0);
  void forget_question(size_t stream);
  void show_unfinished(size_t stream);
  // Makes room for the bars of this stream. Returns false without an area, or in the background; bars are then lines.
  bool is_area_visible(size_t stream);
  // Sets the text after a bar's '\r' as the bar's next state, unless a newline follows the text.
  void set_held_bar(size_t stream, std::string_view prefix);
  // `text`: with the prefix.
  void set_bar(size_t stream, std::string_view prefix, std::string_view text);
  // Writes the color sequences in a text that the terminal does not show.
  void write_colors(std::string_view text);
  // Removes the beginning of a bar that was shown as a possible question. `width`: its bytes, at least as many as its
  // columns.
  void take_back(size_t stream, size_t width);
  void end_bar(size_t stream);
  void end_bars();
  void draw_by(Clock::time_point time);
  // Draws the area's current state, at most four times a second, unless other output is in its place.
  void draw_area();

  TerminalPort& port_;
  const bool has_area_;
  std::vector<Stream> streams_;
  std::vector<size_t> askers_;  // streams that may show questions
  CursorState cursor_ = CursorState::kLineStart;
  // The stream of the row with the cursor in kOpenLine and kBar; may be unset in kBar.
  std::optional<size_t> owner_;
  // In kBar: the row was written while the launcher was in the background.
  bool is_bar_movable_ = false;
  std::optional<size_t> asker_;  // the stream of a question that the user has not answered
  StatusArea area_;
  std::string status_, alarm_;
  const std::shared_ptr<AreaOnTerminal> area_state_ = std::make_shared<AreaOnTerminal>();
  Clock::time_point drawn_{};  // last drawing of the area
  Clock::time_point draws_at_ = Clock::time_point::max();
};

}  // namespace hvd::launcher
