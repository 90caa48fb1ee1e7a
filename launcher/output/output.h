// Prints the output of the ranks: tagged whole lines on standard output and error, and a copy in files
// with --output-filename. Takes the lines that the launch's thread logs. A stalled terminal, pipe or file system holds back the ranks by credit, and
// never blocks the loop. JobLaunch owns and calls it. Lives on the launch's loop.
#pragma once

#include <unistd.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/link/agent_link.h"
#include "launcher/output/line_folder.h"
#include "launcher/output/line_tagger.h"
#include "launcher/output/log_queue.h"
#include "launcher/output/report.h"
#include "launcher/output/sink.h"
#include "launcher/output/traceback_folder.h"
#include "launcher/plan/slot_plan.h"
#include "launcher/terminal/color.h"
#include "launcher/terminal/status_area.h"

namespace hvd::launcher {

// How what ranks print is shown.
struct OutputStyle {
  std::string directory;      // also gets it; empty: none does
  bool is_continued = false;  // the directory's files keep their contents
  std::string tag;            // value of --tag; empty: "[0]<stdout>:"
  bool has_timestamps = false;
  LineFormat format = LineFormat::kText;
  ColorRule colors{};            // of the tags of ranks
  bool may_show_status = false;  // on a terminal that both streams have
  bool folds = false;            // equal lines of many ranks are shown once
  // Tracebacks that the failure of another rank has caused are shown as one sentence (traceback_folder.h).
  bool folds_tracebacks = false;
  std::vector<bool> is_shown;  // by rank; empty: all are
  // The rank whose unfinished lines a terminal shows, since it may ask a question; -1: no rank.
  int asking_rank = -1;
  // Gets all whole lines, also of ranks that are not shown; or null. It never holds back the ranks, and outlives
  // the output.
  LogQueue* log = nullptr;
  // The log gets what the standard streams would, and holds back the ranks as they would: nothing else shows it.
  bool is_shown_by_log = false;
};

class JobOutput {
 public:
  ~JobOutput();
  // The plan must outlive it. The style's directory is made with rank.N/stdout and rank.N/stderr in it, N padded with zeros
  // to one width; an error names the path.
  static Result<std::unique_ptr<JobOutput>> open(net::asio::any_io_executor executor,
                                                 const SlotPlan& plan, OutputStyle style);

  // How many bytes of a rank were shown and are not far from its file, so that it may write as many
  // more.
  using Consumed = std::function<void(int rank, OutputStream stream, size_t size)>;
  void on_consumed(Consumed callback) { consumed_ = std::move(callback); }
  // Our standard output or error can take no more.
  using Broken = std::function<void(OutputStream stream, int error_number)>;
  void on_broken(Broken callback);

  // The plan has got more ranks. The thread makes their files, and says later which it cannot make.
  void grow();
  void write(int rank, OutputStream stream, ByteView bytes);
  // The rank will write no more.
  void end(int rank, OutputStream stream);
  // The host of the rank is lost: no end of its output will come. The terminal keeps its bars as lines.
  void forget(int rank);
  // The rank has ended. Its output may come later.
  void rank_ended(int rank, TracebackFolder::End how);
  // Shows the tracebacks that are held back: the job has ended.
  void show_tracebacks() { settle_tracebacks(true); }
  // A line of the launcher itself, on standard error: "horovodrun: " + sentence.
  void print(std::string_view sentence, Tone tone = Tone::kNotice);
  // The user has ended a line on the terminal, which stands behind what a rank asked.
  void line_was_typed();
  // The terminal has shown ^C, without an end of the line, on standard error.
  void end_typed_line();
  // The line below the output, on a terminal whose foreground is the launcher; empty: none.
  void show_status(std::string_view line);
  // A line in its place, while there is one.
  void show_alarm(std::string_view line);
  // For another thread that writes to the terminal while the loop is blocked.
  std::shared_ptr<AreaOnTerminal> area_on_terminal() const { return area_state_; }
  // Whether there is such a terminal.
  bool has_area() const { return has_area_; }
  // Whether the launcher is in its foreground, too, and nothing stands where the line would be.
  bool has_status() const {
    return has_area_ && asking_ == nullptr && !has_raw_bar_ && is_in_foreground();
  }
  // Whether that line may have colors.
  bool colors_status() const { return style_.colors.holds_for(STDERR_FILENO); }
  // Ends the progress bars of ranks, as lines, if the launcher is not in the foreground: nothing would show them.
  void end_hidden_bars();
  // The launcher stops, and another program gets the terminal.
  void withdraw_status();
  // The last lines that a rank wrote to its standard error (rank_errors.h says which), as they were
  // shown, or with their tag where objects were; or empty.
  std::string last_errors(int rank) const;
  // The exception of its last traceback (rank_errors.h), or empty.
  std::string last_exception(int rank) const;

  bool is_stalled() const {
    return stdout_.is_stalled() || stderr_.is_stalled() || unfiled_ > 0 || unlogged() > 0;
  }
  net::Task<void> drain();
  // Throws away what is stalled now, and what follows on that stream: the user will not wait.
  void discard_stalled();

 private:
  struct Channel {
    Channel(size_t key, std::string tag, LineFormat format, bool is_shown)
        : key(key), tag(tag), tagger(std::move(tag), format), is_shown(is_shown) {}
    size_t key;       // its place among the channels
    std::string tag;  // behind the time
    LineTagger tagger;
    bool is_shown;
    std::unique_ptr<Sink> file;
    std::string path;
    std::string recent;    // newest bytes, kept for standard error only
    LineTagger plain{""};  // cuts lines for folding, and for the report beside objects
    std::unique_ptr<net::asio::steady_timer>
        soon;                  // shows an unfinished line after a pause, as a prompt
    bool is_waiting = false;   // the timer `soon` runs
    size_t shown = 0;          // bytes of the tagger's unfinished line that were shown
    bool has_cleared = false;  // its last text has cleared its bar
  };
  struct Folding {
    Folding(net::asio::any_io_executor executor, int size) : lines(size), timer(executor) {}
    LineFolder lines;
    net::asio::steady_timer timer;
    bool is_waiting = false;
  };

  JobOutput(net::asio::any_io_executor executor, const SlotPlan& plan, OutputStyle style);
  void open_channels(int rank);
  // `waits`: until they are open. Else errors are said later.
  Status open_files(int rank, bool waits);
  Channel& channel(int rank, OutputStream stream);
  // One for both streams that are one terminal: what erases the area must not overtake output.
  Sink& sink(OutputStream stream) {
    return has_area_ || stream == OutputStream::kStdout ? stdout_ : stderr_;
  }
  // To the user. `rank`: whose lines they are, or -1.
  void put(OutputStream stream, std::string_view bytes, std::function<void()> written = {},
           int rank = -1);
  // Bytes that wait for a log which holds back the ranks.
  size_t unlogged() const { return style_.is_shown_by_log ? style_.log->missing() : 0; }
  // Whether files and the log have taken so much that more may come.
  bool has_room() const;
  // Everywhere but to the user: the lines that these bytes, or the end, have made whole.
  void keep(int rank, OutputStream stream, std::string_view lines, ByteView bytes);
  void show(Channel& from, OutputStream stream, std::string_view prefix, std::string_view lines,
            std::function<void()> written = {});
  void show_soon(Channel& from, OutputStream stream);
  bool is_area_visible(const Channel& from);
  // The lines without progress bars, which the area shows.
  std::string take_bars(Channel& from, const std::string& lines, std::string_view prefix);
  // `text`: with the prefix.
  void set_held_bar(Channel& from, std::string_view prefix);
  void set_bar(Channel& from, std::string_view prefix, std::string_view text);
  // Writes the sequences for colors in a text that the terminal does not show.
  void write_colors(std::string_view text);
  // Whether the unfinished line is not to be shown.
  bool ends_blank(const Channel& from) const;
  // `width`: bytes of the begun line, which are at least its columns.
  void take_back(Channel& from, size_t width);
  void end_bar(Channel& from, OutputStream stream);
  void end_bars();
  // The channel will write no more: it leaves room for the area.
  void leave_terminal(const Channel& from);
  static bool is_in_foreground();
  // Returns the bytes that erase the area, unless another thread has written behind it.
  std::string erase_area(size_t below = 0);
  // Writes what the area shows now, at most four times a second, unless something stands in its way.
  void draw_area();
  // Erases it before something else is written, and draws it again soon.
  void make_way(size_t below = 0);
  void end_open_line();
  // Makes room on a terminal for a line that is no rank's.
  void begin_line();
  // The tag, with the color of the first rank where a terminal shows it.
  std::string shown_tag(const std::vector<int>& ranks, OutputStream stream) const;
  void copy_to_file(Channel& channel, std::string_view lines);
  // `rank`: -1 for lines of the launcher.
  void copy_to_log(int rank, OutputStream stream, std::string_view lines);
  void flush_log_later();
  // Calls `consumed_` once the files have room.
  void release(int rank, OutputStream stream, size_t size);
  void release_held();
  // The time of the lines that come now, before their tag.
  void stamp(Channel& channel);
  std::string stamped(const std::string& tag) const;
  size_t tag_size(int rank) const;
  // Lines of a rank that was given bytes or, without any, has ended.
  void fold(int rank, OutputStream stream, ByteView bytes);
  void fold_lines(int rank, OutputStream stream, std::string_view lines);
  // The lines without those that are held back as a traceback.
  std::string pass(int rank, OutputStream stream, std::string lines, bool is_begun);
  void settle_tracebacks(bool all);
  void settle_tracebacks_by(Clock::time_point time);
  bool is_held_back(const Channel& from, OutputStream stream) const;
  void unfold(OutputStream stream, bool all);
  std::unique_ptr<Folding>& folding(OutputStream stream) {
    return folding_[stream == OutputStream::kStdout ? 0 : 1];
  }

  const SlotPlan& plan_;
  int size_;
  OutputStyle style_;
  net::asio::any_io_executor executor_;
  WriterThread thread_;
  Sink stdout_, stderr_;
  std::deque<Channel> channels_;  // two a rank
  std::unique_ptr<Folding> folding_[2];
  std::unique_ptr<TracebackFolder> tracebacks_;  // null: none are held back
  net::asio::steady_timer tracebacks_timer_;
  Clock::time_point settled_by_ = Clock::time_point::max();  // the timer's time
  Consumed consumed_;
  struct Release {
    int rank;
    OutputStream stream;
    size_t size;
  };
  // A copy of the log's socket, which is waited for; closed without a log.
  net::asio::posix::stream_descriptor log_room_;
  bool log_waits_ = false;    // for log_room_
  size_t unfiled_ = 0;        // bytes that wait for files
  std::deque<Release> held_;  // until fewer bytes wait
  const bool has_area_;       // both streams are one terminal
  StatusArea area_;
  std::string status_, alarm_;  // the lines of show_status() and show_alarm()
  const std::shared_ptr<AreaOnTerminal> area_state_ = std::make_shared<AreaOnTerminal>();
  net::asio::steady_timer area_timer_;
  bool area_waits_ = false;  // for its timer
  Clock::time_point area_drawn_{};
  // The last line on the terminal ends in '\r' and is not in the area: its bar moves the cursor, or the area was hidden.
  bool has_raw_bar_ = false;
  bool is_raw_movable_ = false;       // it was written while the launcher was not in the foreground
  const Channel* raw_bar_ = nullptr;  // its channel; null: several, or none
  // The channel whose unfinished line is the last one on the terminal; or null.
  Channel* open_line_ = nullptr;
  // The channel whose unfinished line on the terminal may be a question, until the user has typed a line.
  Channel* asking_ = nullptr;
  OutputStream open_stream_ = OutputStream::kStdout;
};

// By the style, for the ranks that said a line: "[0-3]<stdout>:", "a/3: ", or the members of an
// object behind its time.
std::string line_tag(const SlotPlan& plan, const std::vector<int>& ranks, OutputStream stream,
                     const OutputStyle& style);
// "03" for rank 3 of 11 to 100.
std::string padded_rank(int rank, int size);

}  // namespace hvd::launcher
