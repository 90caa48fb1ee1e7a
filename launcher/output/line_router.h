// Routes the output of the ranks: cuts and tags lines, combines equal lines (--fold), holds back tracebacks, and keeps
// the newest lines for the report. Passes the results to LineSinks. Uses no terminal, descriptor or clock: each call
// carries the time, and the owner, JobOutput, calls on_time() at due(). Pure.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "launcher/output/line_folder.h"
#include "launcher/output/line_tagger.h"
#include "launcher/output/traceback_folder.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

class HostTable;

struct LineStyle {
  std::string tag{};  // value of --tag; empty: "[0]<stdout>:"
  bool has_timestamps = false;
  LineFormat format = LineFormat::kText;
  bool folds = false;  // shows equal lines of many ranks once
  // Shows a traceback that another rank's failure caused as one sentence (traceback_folder.h).
  bool folds_tracebacks = false;
  std::vector<bool> is_shown{};                       // by rank; empty: all are shown
  bool colors_stdout = false, colors_stderr = false;  // tags have a color on this stream
};

// Output lines to show to the user: of one rank, or equal lines of several ranks.
struct ShownLines {
  int rank;  // -1: written by several ranks
  OutputStream stream;
  std::string_view prefix;  // prefix of the first line, which may already be shown in part
  std::string text;         // complete lines; may be empty
  // Ranks, each with the number of its output bytes to confirm as shown once these lines are written.
  std::vector<std::pair<int, size_t>> consumed{};
};

// Receives the router's results.
class LineSinks {
 public:
  virtual ~LineSinks() = default;
  // Takes complete lines for the file and the log, also of ranks that are not shown. `is_colored`: with colored tags.
  virtual void keep(int rank, OutputStream stream, std::string_view lines, bool is_colored) = 0;
  // Returns the lines without the progress bars that the terminal shows separately.
  virtual std::string take_bars(int rank, OutputStream stream, std::string_view prefix,
                                std::string lines) = 0;
  // Returns whether the beginning of the stream's unfinished line is already shown.
  virtual bool has_begun(int rank, OutputStream stream) = 0;
  virtual void show(const ShownLines& lines) = 0;
  // Like show(), for the last line, which has no line end. `held`: the unfinished line as the program wrote it; `lines`
  // has what remains to show of it.
  virtual void show_last(const ShownLines& lines, std::string_view held) = 0;
  // Prints a sentence of the launcher.
  virtual void print(std::string_view sentence) = 0;
  virtual void wake_by(Clock::time_point time) = 0;
};

struct Moment {
  Clock::time_point time{};
  std::chrono::system_clock::time_point wall{};  // for --prefix-timestamp, {time} and JSON objects
};

class LineRouter {
 public:
  // The hosts and the sinks must outlive this object.
  LineRouter(const HostTable& hosts, LineStyle style, LineSinks& sinks);

  // Call when the table has got more ranks.
  void grow();
  void write(int rank, OutputStream stream, ByteView bytes, const Moment& now);
  // Call when the rank will write nothing further to the stream.
  void end(int rank, OutputStream stream, const Moment& now);
  // Call when the rank has ended; output of the rank may arrive later.
  void rank_ended(int rank, TracebackFolder::End how, Clock::time_point now);
  // Passes on held tracebacks. `all`: the job has ended.
  void settle_tracebacks(bool all, const Moment& now);
  // Passes on folded lines. `all`: also lines that other ranks may still print.
  void unfold(OutputStream stream, bool all, const Moment& now);
  // Returns the next time at which on_time() must be called. on_time() does the work that is due.
  Clock::time_point due() const;
  void on_time(const Moment& now);

  bool is_shown(int rank) const;
  // Returns the tagger with the stream's unfinished line. The reference stays valid after grow().
  const LineTagger& tagger(int rank, OutputStream stream) const {
    return channels_[place(rank, stream)].tagger;
  }
  // Returns whether lines of the stream are held back. They must be shown before its unfinished line.
  bool is_holding_back(int rank, OutputStream stream) const;
  // For JobOutput::last_errors() and last_exception().
  std::string last_errors(int rank) const;
  std::string last_exception(int rank) const;

 private:
  struct Channel {
    Channel(std::string tag, LineFormat format) : tag(tag), tagger(std::move(tag), format) {}
    std::string tag;  // without the time before it
    LineTagger tagger;
    std::string recent;    // newest bytes of standard error; empty for standard output
    LineTagger plain{""};  // cuts lines for folding, and for reports if the output has JSON objects
  };
  struct Folding {
    std::unique_ptr<LineFolder> lines;  // null: no folding
    Clock::time_point due = Clock::time_point::max();
  };

  // Returns the index in `channels_`.
  size_t place(int rank, OutputStream stream) const;
  Channel& channel(int rank, OutputStream stream) { return channels_[place(rank, stream)]; }
  Folding& folding(OutputStream stream) {
    return folding_[stream == OutputStream::kStdout ? 0 : 1];
  }
  // Returns the tag, with the first rank's color if a terminal shows the tag.
  std::string shown_tag(const std::vector<int>& ranks, OutputStream stream) const;
  std::string stamped(const std::string& tag, const Moment& now) const;
  // Sets the time before the tag of the next lines.
  void stamp(Channel& channel, const Moment& now);
  // Returns the length of the tag of each line in `recent`.
  size_t tag_size(int rank) const;
  // Handles lines that `bytes` has completed. Without bytes, the end of the stream has completed them.
  void keep(int rank, OutputStream stream, std::string_view lines, ByteView bytes);
  void fold(int rank, OutputStream stream, ByteView bytes, const Moment& now);
  void fold_lines(int rank, OutputStream stream, std::string_view lines, Clock::time_point now);
  // Returns the lines except lines that are held back as a traceback.
  std::string pass(int rank, OutputStream stream, std::string lines, bool is_begun,
                   Clock::time_point now);
  void settle_by(Clock::time_point time);

  const HostTable& hosts_;
  const LineStyle style_;
  LineSinks& sinks_;
  std::deque<Channel> channels_;  // two per rank
  Folding folding_[2];
  std::unique_ptr<TracebackFolder> tracebacks_;  // null: tracebacks are not held back
  Clock::time_point settled_by_ = Clock::time_point::max();
};

// Returns the tag of these ranks' lines in the style's format: "[0-3]<stdout>:" or "a/3: ". For JSON, returns the
// members of an object after its time.
std::string line_tag(const HostTable& hosts, const std::vector<int>& ranks, OutputStream stream,
                     const LineStyle& style);

}  // namespace hvd::launcher
