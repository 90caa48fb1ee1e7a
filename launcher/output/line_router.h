// Decides where the output of the ranks goes: cuts and tags lines, combines equal ones (--fold), holds back tracebacks,
// and keeps the newest lines for the report. Passes what it made to LineSinks. Knows no terminal, descriptor or clock:
// its calls have the time, and its owner, JobOutput, calls on_time() when due() has come. Pure.
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
#include "launcher/plan/slot_plan.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

struct LineStyle {
  std::string tag{};  // value of --tag; empty: "[0]<stdout>:"
  bool has_timestamps = false;
  LineFormat format = LineFormat::kText;
  bool folds = false;  // equal lines of many ranks are shown once
  // Tracebacks that the failure of another rank has caused are shown as one sentence (traceback_folder.h).
  bool folds_tracebacks = false;
  std::vector<bool> is_shown{};                       // by rank; empty: all are
  bool colors_stdout = false, colors_stderr = false;  // the tags there have colors
};

// Lines for the user.
struct ShownLines {
  int rank;  // -1: several ranks have written them
  OutputStream stream;
  std::string_view prefix;  // of the first line, a part of which may be shown already
  std::string text;         // whole lines; or empty
  std::vector<std::pair<int, size_t>> consumed{};  // bytes that count as shown with them, by rank
};

// Receives what the router makes of the output.
class LineSinks {
 public:
  virtual ~LineSinks() = default;
  // Whole lines for the file and the log, also of ranks that are not shown. `is_colored`: their tags are.
  virtual void keep(int rank, OutputStream stream, std::string_view lines, bool is_colored) = 0;
  // Returns the lines without the progress bars that the terminal shows in another place.
  virtual std::string take_bars(int rank, OutputStream stream, std::string_view prefix,
                                std::string lines) = 0;
  // Whether the beginning of the unfinished line is shown already.
  virtual bool has_begun(int rank, OutputStream stream) = 0;
  virtual void show(const ShownLines& lines) = 0;
  // As show(), for the last line, which has no line end. `held`: its text.
  virtual void show_last(const ShownLines& lines, std::string_view held) = 0;
  // A sentence of the launcher.
  virtual void print(std::string_view sentence) = 0;
  virtual void wake_by(Clock::time_point time) = 0;
};

struct Moment {
  Clock::time_point time{};
  std::chrono::system_clock::time_point wall{};  // for --prefix-timestamp, {time} and objects
};

class LineRouter {
 public:
  // The plan and the sinks must outlive it.
  LineRouter(const SlotPlan& plan, LineStyle style, LineSinks& sinks);

  // The plan has got more ranks.
  void grow();
  void write(int rank, OutputStream stream, ByteView bytes, const Moment& now);
  // The rank will write no more.
  void end(int rank, OutputStream stream, const Moment& now);
  // The rank has ended. Its output may come later.
  void rank_ended(int rank, TracebackFolder::End how, Clock::time_point now);
  // Passes on the tracebacks that are held back. `all`: the job has ended.
  void settle_tracebacks(bool all, const Moment& now);
  // Passes on the folded lines; `all`: also those that may still be said by others.
  void unfold(OutputStream stream, bool all, const Moment& now);
  // When on_time() is to be called, which does what is due first.
  Clock::time_point due() const;
  void on_time(const Moment& now);

  bool is_shown(int rank) const;
  // Has the unfinished line. Stays where it is.
  const LineTagger& tagger(int rank, OutputStream stream) const {
    return channels_[place(rank, stream)].tagger;
  }
  // An unfinished line does not come before the lines that are held back.
  bool is_holding_back(int rank, OutputStream stream) const;
  // As JobOutput::last_errors() and last_exception().
  std::string last_errors(int rank) const;
  std::string last_exception(int rank) const;

 private:
  struct Channel {
    Channel(std::string tag, LineFormat format) : tag(tag), tagger(std::move(tag), format) {}
    std::string tag;  // behind the time
    LineTagger tagger;
    std::string recent;    // newest bytes, kept for standard error only
    LineTagger plain{""};  // cuts lines for folding, and for the report beside objects
  };
  struct Folding {
    std::unique_ptr<LineFolder> lines;  // null: none are folded
    Clock::time_point due = Clock::time_point::max();
  };

  // Among the channels.
  size_t place(int rank, OutputStream stream) const;
  Channel& channel(int rank, OutputStream stream) { return channels_[place(rank, stream)]; }
  Folding& folding(OutputStream stream) {
    return folding_[stream == OutputStream::kStdout ? 0 : 1];
  }
  // The tag, with the color of the first rank where a terminal shows it.
  std::string shown_tag(const std::vector<int>& ranks, OutputStream stream) const;
  std::string stamped(const std::string& tag, const Moment& now) const;
  // The time of the lines that come now, before their tag.
  void stamp(Channel& channel, const Moment& now);
  // The length of the tag of each line in `recent`.
  size_t tag_size(int rank) const;
  // Lines that these bytes or, without any, the end have made whole.
  void keep(int rank, OutputStream stream, std::string_view lines, ByteView bytes);
  void fold(int rank, OutputStream stream, ByteView bytes, const Moment& now);
  void fold_lines(int rank, OutputStream stream, std::string_view lines, Clock::time_point now);
  // The lines without those that are held back as a traceback.
  std::string pass(int rank, OutputStream stream, std::string lines, bool is_begun,
                   Clock::time_point now);
  void settle_by(Clock::time_point time);

  const SlotPlan& plan_;
  const LineStyle style_;
  LineSinks& sinks_;
  std::deque<Channel> channels_;  // two a rank
  Folding folding_[2];
  std::unique_ptr<TracebackFolder> tracebacks_;  // null: none are held back
  Clock::time_point settled_by_ = Clock::time_point::max();
};

// By the style, for the ranks that said a line: "[0-3]<stdout>:", "a/3: ", or the members of an
// object behind its time.
std::string line_tag(const SlotPlan& plan, const std::vector<int>& ranks, OutputStream stream,
                     const LineStyle& style);

}  // namespace hvd::launcher
