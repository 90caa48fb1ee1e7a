// The output of a job: passes the ranks' output through a LineRouter to the Terminal, to the files of --output-filename
// and to the log. Also prints the launcher's lines, and the lines that the loop's thread logs. A stalled terminal, pipe
// or file system holds back the ranks by credit, and never blocks the loop. JobLaunch owns this object. Lives on the
// launch's loop.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/output/line_router.h"
#include "launcher/output/log_queue.h"
#include "launcher/output/report.h"
#include "launcher/output/sink.h"
#include "launcher/output/terminal.h"
#include "launcher/output/terminal_text.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

struct OutputStyle : LineStyle {
  std::string directory;         // receives a copy of the output; may be empty
  bool is_continued = false;     // keep the contents of the directory's files
  ColorRule colors{};            // for the tags of ranks
  bool may_show_status = false;  // TERM and the user allow a status line
  // The rank whose incomplete lines a terminal shows, because they may be a question; -1: none.
  int asking_rank = -1;
  // Receives all complete lines, also of ranks that are not shown, and never holds back the ranks, unless
  // is_shown_by_log; may be null. Must outlive the output.
  LogQueue* log = nullptr;
  // The log replaces the standard streams, and holds back the ranks as the streams would do.
  bool is_shown_by_log = false;
};

// Returns the style from the settings of a launch, without a log. `size`: number of ranks. An error names the flag.
Result<OutputStyle> output_style(const LaunchSettings& settings, int size, uint32_t generation,
                                 bool is_elastic);

class JobOutput : LineSinks, TerminalPort {
 public:
  ~JobOutput() override;
  // `hosts` must outlive the output. Creates the style's directory with rank.N/stdout and rank.N/stderr,
  // where N is padded with zeros to one width; an error names the path.
  static Result<std::unique_ptr<JobOutput>> open(net::asio::any_io_executor executor,
                                                 const HostTable& hosts, OutputStyle style);

  // Called when bytes of a rank were shown, and few bytes wait for files and the log. The rank may then write
  // `size` more bytes.
  using Consumed = std::function<void(int rank, OutputStream stream, size_t size)>;
  void on_consumed(Consumed callback) { consumed_ = std::move(callback); }
  // Called when the launcher's standard output or error accepts no further bytes.
  using Broken = std::function<void(OutputStream stream, int error_number)>;
  void on_broken(Broken callback);

  // Call when the table has got more ranks. The writer thread creates their files; errors are reported later.
  void grow();
  void write(int rank, OutputStream stream, ByteView bytes);
  // Call when the rank will write nothing further to the stream.
  void end(int rank, OutputStream stream);
  // Call when the rank's host is lost, and its output will not be complete. The terminal keeps its bars as lines.
  void forget(int rank);
  // Call when the rank has ended; output of the rank may arrive later.
  void rank_ended(int rank, TracebackFolder::End how);
  // Shows held tracebacks. Call when the job has ended.
  void show_tracebacks();
  // Prints a line of the launcher on standard error: "horovodrun: " + sentence.
  void print(std::string_view sentence, Tone tone);
  void print(std::string_view sentence) override { print(sentence, Tone::kNotice); }
  // Call when the terminal has echoed ^C on standard error, without a line end.
  void end_typed_line();
  // Returns the terminal, for the status line and typed input.
  Terminal& terminal() { return terminal_; }
  bool colors_status() const { return style_.colors.holds_for(STDERR_FILENO); }
  // Returns the last lines of a rank's standard error, selected by traceback.h; may be empty. The lines are as shown;
  // in place of JSON objects, they have a text tag.
  std::string last_errors(int rank) const { return router_.last_errors(rank); }
  // Returns the exception of the rank's last traceback (traceback.h), or an empty text.
  std::string last_exception(int rank) const { return router_.last_exception(rank); }

  bool is_stalled() const;
  net::Task<void> drain();
  // Discards stalled output, and all further output of the stalled stream. Call when the user does not want to wait.
  void discard_stalled();

 private:
  JobOutput(net::asio::any_io_executor executor, const HostTable& hosts, OutputStyle style);
  // LineSinks.
  void keep(int rank, OutputStream stream, std::string_view lines, bool is_colored) override;
  std::string take_bars(int rank, OutputStream stream, std::string_view prefix,
                        std::string lines) override;
  bool has_begun(int rank, OutputStream stream) override;
  void show(const ShownLines& lines) override;
  void show_last(const ShownLines& lines, std::string_view held) override;
  // TerminalPort.
  void put(OutputStream stream, std::string_view bytes, std::function<void()> written) override;
  TerminalSize size() const override;
  bool is_in_foreground() const override;
  bool has_waiting_bytes() const override;
  bool is_holding_back(size_t stream) const override;
  Clock::time_point now() const override { return Clock::now(); }
  // Implements LineSinks and TerminalPort.
  void wake_by(Clock::time_point time) override;

  // Adds the streams of the rank `rank`, and of all later ranks, to the terminal.
  void add_streams(int rank);
  // `waits`: waits until the files are open. Otherwise errors are reported later.
  Status open_files(int rank, bool waits);
  // Returns the sink of the stream. A terminal with a status area has one sink for both streams, so that the bytes that
  // erase the area stay in order with the output.
  Sink& sink(OutputStream stream) {
    return terminal_.has_area() || stream == OutputStream::kStdout ? stdout_ : stderr_;
  }
  // Prints a line of the launcher. `logged`: the form of the line for the log.
  void print_line(std::string_view shown, std::string_view logged);
  // Returns the number of bytes that wait for the log, if it holds back the ranks; else 0.
  size_t unlogged() const { return style_.is_shown_by_log ? style_.log->missing() : 0; }
  // Returns whether files and the log have accepted enough bytes for further output.
  bool has_room() const;
  // `rank`: -1 for lines of the launcher.
  void copy_to_log(int rank, OutputStream stream, std::string_view lines);
  void flush_log_later();
  // Calls `consumed_` when the files have space.
  void release(int rank, OutputStream stream, size_t size);
  void release_held();

  const HostTable& hosts_;
  const OutputStyle style_;
  net::asio::any_io_executor executor_;
  WriterThread thread_;
  Sink stdout_, stderr_;
  Terminal terminal_;
  LineRouter router_;
  std::vector<std::unique_ptr<Sink>> files_;  // two per rank; empty without a directory
  net::asio::steady_timer timer_;             // serves the terminal and the router
  Clock::time_point wakes_at_ = Clock::time_point::max();
  Consumed consumed_;
  struct Release {
    int rank;
    OutputStream stream;
    size_t size;
  };
  // A copy of the log's socket, for waiting; closed without a log.
  net::asio::posix::stream_descriptor log_room_;
  bool log_waits_ = false;    // waiting for log_room_
  size_t unfiled_ = 0;        // bytes waiting for files
  std::deque<Release> held_;  // released when fewer bytes wait for files
};

// Returns "03" for rank 3 of 11 to 100 ranks.
std::string padded_rank(int rank, int size);

}  // namespace hvd::launcher
