// The output of a job: passes what the ranks print through a LineRouter to the Terminal, to files with
// --output-filename and to the log, and prints the launcher's own lines. Takes the lines that the launch's thread logs.
// A stalled terminal, pipe or file system holds back the ranks by credit, and never blocks the loop. JobLaunch owns and
// calls it. Lives on the launch's loop.
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

// How what ranks print is shown.
struct OutputStyle : LineStyle {
  std::string directory;         // also gets it; empty: none does
  bool is_continued = false;     // the directory's files keep their contents
  ColorRule colors{};            // of the tags of ranks
  bool may_show_status = false;  // on a terminal that both streams have
  // The rank whose unfinished lines a terminal shows, since it may ask a question; -1: no rank.
  int asking_rank = -1;
  // Gets all whole lines, also of ranks that are not shown; or null. It never holds back the ranks, and outlives
  // the output.
  LogQueue* log = nullptr;
  // The log gets what the standard streams would, and holds back the ranks as they would: nothing else shows it.
  bool is_shown_by_log = false;
};

// By the settings of a launch, without a log. `size`: of the job. An error names the flag.
Result<OutputStyle> output_style(const LaunchSettings& settings, int size, uint32_t generation,
                                 bool is_elastic);

class JobOutput : LineSinks, TerminalPort {
 public:
  ~JobOutput() override;
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
  void show_tracebacks();
  // A line of the launcher itself, on standard error: "horovodrun: " + sentence.
  void print(std::string_view sentence, Tone tone);
  void print(std::string_view sentence) override { print(sentence, Tone::kNotice); }
  // The terminal has shown ^C, without an end of the line, on standard error.
  void end_typed_line();
  // For what the launcher shows below the output, and for what the user types there.
  Terminal& terminal() { return terminal_; }
  // Whether the status line may have colors.
  bool colors_status() const { return style_.colors.holds_for(STDERR_FILENO); }
  // The last lines that a rank wrote to its standard error (rank_errors.h says which), as they were
  // shown, or with their tag where objects were; or empty.
  std::string last_errors(int rank) const { return router_.last_errors(rank); }
  // The exception of its last traceback (rank_errors.h), or empty.
  std::string last_exception(int rank) const { return router_.last_exception(rank); }

  bool is_stalled() const;
  net::Task<void> drain();
  // Throws away what is stalled now, and what follows on that stream: the user will not wait.
  void discard_stalled();

 private:
  JobOutput(net::asio::any_io_executor executor, const SlotPlan& plan, OutputStyle style);
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
  // Both.
  void wake_by(Clock::time_point time) override;

  // Gives the terminal the streams of ranks from this one on.
  void add_streams(int rank);
  // `waits`: until they are open. Else errors are said later.
  Status open_files(int rank, bool waits);
  // One for both streams that are one terminal: what erases the area must not overtake output.
  Sink& sink(OutputStream stream) {
    return terminal_.has_area() || stream == OutputStream::kStdout ? stdout_ : stderr_;
  }
  // A line of the launcher. `logged`: the same for the log.
  void print_line(std::string_view shown, std::string_view logged);
  // Bytes that wait for a log which holds back the ranks.
  size_t unlogged() const { return style_.is_shown_by_log ? style_.log->missing() : 0; }
  // Whether files and the log have taken so much that more may come.
  bool has_room() const;
  // `rank`: -1 for lines of the launcher.
  void copy_to_log(int rank, OutputStream stream, std::string_view lines);
  void flush_log_later();
  // Calls `consumed_` once the files have room.
  void release(int rank, OutputStream stream, size_t size);
  void release_held();

  const SlotPlan& plan_;
  const OutputStyle style_;
  net::asio::any_io_executor executor_;
  WriterThread thread_;
  Sink stdout_, stderr_;
  Terminal terminal_;
  LineRouter router_;
  std::vector<std::unique_ptr<Sink>> files_;  // two a rank; none without a directory
  net::asio::steady_timer timer_;             // of terminal and router
  Clock::time_point wakes_at_ = Clock::time_point::max();
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
};

// "03" for rank 3 of 11 to 100.
std::string padded_rank(int rank, int size);

}  // namespace hvd::launcher
