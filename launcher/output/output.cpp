#include "launcher/output/output.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "base/files/own_file.h"
#include "base/log/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/hosts/host_table.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {
namespace {

// If more bytes wait for files, ranks get no further credit.
constexpr size_t kUnfiledLimit = 1 << 20;

bool are_one_terminal() {
  struct stat out {};
  struct stat error {};
  return ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1 &&
         ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &error) == 0 &&
         out.st_rdev == error.st_rdev;
}

size_t number_of(int rank, OutputStream stream) {
  return 2 * static_cast<size_t>(rank) + (stream == OutputStream::kStderr ? 1 : 0);
}

Moment moment() { return {Clock::now(), std::chrono::system_clock::now()}; }

OutputStyle with_colors(OutputStyle style) {
  const bool is_filed = !style.directory.empty();  // files get the same lines
  style.colors_stdout = !is_filed && style.colors.holds_for(STDOUT_FILENO);
  style.colors_stderr = !is_filed && style.colors.holds_for(STDERR_FILENO);
  return style;
}

}  // namespace

std::string padded_rank(int rank, int size) {
  const std::string text = cat(rank);
  const size_t width = cat(size - 1).size();
  return text.size() < width ? std::string(width - text.size(), '0') + text : text;
}

Result<OutputStyle> output_style(const LaunchSettings& settings, int size, uint32_t generation,
                                 bool is_elastic) {
  OutputStyle style;
  style.directory = settings.output.output_filename.value_or("");
  style.is_continued = generation > 0;
  style.tag = settings.output.tag;
  const bool is_smart = environment_variable("TERM").value_or("dumb") != "dumb";
  style.colors = color_rule(settings.output.color);
  style.may_show_status = is_smart && !settings.output.no_progress;
  style.folds = settings.output.fold;
  // Not for JSON objects, which programs read. Not in an elastic job, whose ranks get other numbers in later
  // generations.
  style.folds_tracebacks =
      !settings.job.verbose && !is_elastic && to_lower(settings.output.log_format) != "json";
  style.has_timestamps = settings.output.prefix_timestamp;
  if (to_lower(settings.output.log_format) == "json") style.format = LineFormat::kJson;
  if (settings.output.only_rank.has_value()) {
    auto shown =
        parse_ranks(settings.output.only_rank.value_or(""), generation > 0 ? kMaxSlots : size);
    if (!shown.ok()) return shown.status().with_context("--only-rank");
    style.is_shown = *std::move(shown);
  }
  const std::vector<int> readers = input_readers(settings, size);
  if (!readers.empty()) style.asking_rank = readers.front();
  return style;
}

JobOutput::JobOutput(net::asio::any_io_executor executor, const HostTable& hosts, OutputStyle style)
    : hosts_(hosts),
      style_(with_colors(std::move(style))),
      executor_(executor),
      thread_(executor),
      stdout_(executor, STDOUT_FILENO, thread_),
      stderr_(executor, STDERR_FILENO, thread_),
      terminal_(*this, style_.may_show_status && style_.format == LineFormat::kText &&
                           log::format() != log::Format::kJson && are_one_terminal()),
      router_(hosts, style_, *this),
      timer_(executor),
      log_room_(executor) {
  if (style_.log != nullptr) {
    UniqueFd copy(::fcntl(style_.log->socket(), F_DUPFD_CLOEXEC, 3));
    net::error_code error;  // if the copy fails, the next line flushes the queue
    if (copy) log_room_.assign(copy.get(), error);
    if (copy && !error) static_cast<void>(copy.release());
  }
  add_streams(0);
  // Lines of this thread go through the sinks. Other threads write directly to standard error.
  log::set_writer([this, thread = std::this_thread::get_id()](std::string_view line) {
    if (std::this_thread::get_id() != thread) {
      if (const std::string erased = terminal_.area_on_terminal()->interrupt(); !erased.empty())
        std::fputs(erased.c_str(), stderr);
      return false;
    }
    print_line(line, line);
    return true;
  });
}

JobOutput::~JobOutput() { log::set_writer({}); }

Result<std::unique_ptr<JobOutput>> JobOutput::open(net::asio::any_io_executor executor,
                                                   const HostTable& hosts, OutputStyle style) {
  std::unique_ptr<JobOutput> output(new JobOutput(std::move(executor), hosts, std::move(style)));
  for (int rank = 0; rank < hosts.size(); ++rank)
    HVD_RETURN_IF_ERROR(output->open_files(rank, true));
  return output;
}

void JobOutput::grow() {
  const int size = static_cast<int>(terminal_.streams() / 2);
  router_.grow();
  add_streams(size);
  for (int rank = size; rank < hosts_.size(); ++rank) (void)open_files(rank, false);
}

void JobOutput::add_streams(int rank) {
  const bool is_terminal =
      style_.format == LineFormat::kText && !style_.folds && ::isatty(STDOUT_FILENO) == 1;
  for (; rank < hosts_.size(); ++rank) {
    const bool may_ask = is_terminal && rank == style_.asking_rank && router_.is_shown(rank);
    for (const auto stream : {OutputStream::kStdout, OutputStream::kStderr}) {
      const int fd = stream == OutputStream::kStdout ? STDOUT_FILENO : STDERR_FILENO;
      terminal_.add(stream, router_.tagger(rank, stream), may_ask && ::isatty(fd) == 1);
    }
  }
}

Status JobOutput::open_files(int rank, bool waits) {
  if (style_.directory.empty()) return {};
  // A later rank's number is padded only to its own width: the files of earlier ranks keep their names.
  const int size = waits ? hosts_.size() : rank + 1;
  const auto folder =
      std::filesystem::path(style_.directory) / cat("rank.", padded_rank(rank, size));
  UniqueFd own_folder;
  if (waits) {
    std::error_code error;
    std::filesystem::create_directories(style_.directory, error);
    if (error) return system_error(cat("cannot make directory ", style_.directory), error.value());
    HVD_ASSIGN_OR_RETURN(own_folder, open_own_folder(folder.string()));
  }
  for (const char* const name : {"stdout", "stderr"}) {
    const std::string path = folder / name;
    const int how = style_.is_continued ? O_APPEND : O_TRUNC;
    if (waits) {
      HVD_ASSIGN_OR_RETURN(const UniqueFd file, open_own_file_in(own_folder, name, how, path));
      // `file` closes its descriptor, so the sink needs its own descriptor.
      const UniqueFd second(::fcntl(file.get(), F_DUPFD_CLOEXEC, 3));
      if (!second) return system_error(cat("cannot write to ", path), errno);
      files_.push_back(std::make_unique<Sink>(executor_, file.get(), thread_));
    } else {
      files_.push_back(std::make_unique<Sink>(executor_, path, how, thread_));
    }
    files_.back()->on_broken([this, path](int error) {
      print(system_error(cat("cannot write to ", path), error).message());
    });
  }
  return {};
}

void JobOutput::on_broken(Broken callback) {
  stdout_.on_broken([callback](int error) { callback(OutputStream::kStdout, error); });
  stderr_.on_broken([callback](int error) { callback(OutputStream::kStderr, error); });
}

void JobOutput::write(int rank, OutputStream stream, ByteView bytes) {
  router_.write(rank, stream, bytes, moment());
  terminal_.await_end(number_of(rank, stream));
}

void JobOutput::end(int rank, OutputStream stream) {
  router_.end(rank, stream, moment());
  terminal_.leave(number_of(rank, stream));
  if (!files_.empty()) files_[number_of(rank, stream)]->end();
}

void JobOutput::forget(int rank) {
  for (const auto stream : {OutputStream::kStdout, OutputStream::kStderr})
    terminal_.leave(number_of(rank, stream));
}

void JobOutput::rank_ended(int rank, TracebackFolder::End how) {
  router_.rank_ended(rank, how, Clock::now());
}

void JobOutput::show_tracebacks() { router_.settle_tracebacks(true, moment()); }

void JobOutput::print(std::string_view sentence, Tone tone) {
  router_.unfold(OutputStream::kStderr, true, moment());
  if (style_.format == LineFormat::kText)
    return print_line(shown_line(sentence, tone), line_of(sentence));
  const std::string records = json_records("horovodrun", "", sentence);
  print_line(records, records);
}

void JobOutput::print_line(std::string_view shown, std::string_view logged) {
  copy_to_log(-1, OutputStream::kStderr, style_.is_shown_by_log ? shown : logged);
  if (style_.is_shown_by_log) return;
  terminal_.begin_line();
  put(OutputStream::kStderr, shown, {});
}

void JobOutput::end_typed_line() {
  if (style_.format == LineFormat::kText && ::isatty(STDERR_FILENO) == 1)
    terminal_.end_typed_line();
}

void JobOutput::keep(int rank, OutputStream stream, std::string_view lines, bool is_colored) {
  if (!files_.empty()) {
    unfiled_ += lines.size();
    files_[number_of(rank, stream)]->write(lines, [this, size = lines.size()] {
      unfiled_ -= size;
      release_held();
    });
  }
  if (style_.log == nullptr || style_.is_shown_by_log) return;
  if (is_colored)
    copy_to_log(rank, stream, without_tag_colors(lines));
  else
    copy_to_log(rank, stream, lines);
}

std::string JobOutput::take_bars(int rank, OutputStream stream, std::string_view prefix,
                                 std::string lines) {
  return terminal_.take_bars(number_of(rank, stream), prefix, std::move(lines));
}

bool JobOutput::has_begun(int rank, OutputStream stream) {
  return terminal_.has_begun(number_of(rank, stream));
}

void JobOutput::show(const ShownLines& lines) {
  const auto written = [this, stream = lines.stream, consumed = lines.consumed] {
    for (const auto& [rank, size] : consumed) release(rank, stream, size);
  };
  if (lines.text.empty()) return written();
  if (style_.is_shown_by_log) {
    copy_to_log(lines.rank, lines.stream, lines.text);
    written();
  } else if (style_.folds) {
    terminal_.show_folded(lines.stream, lines.text, written);
  } else {
    terminal_.show(number_of(lines.rank, lines.stream), lines.prefix, lines.text, written);
  }
}

void JobOutput::show_last(const ShownLines& lines, std::string_view held) {
  if (style_.is_shown_by_log) return show(lines);
  terminal_.show_last(number_of(lines.rank, lines.stream), lines.prefix, lines.text, held);
}

void JobOutput::put(OutputStream stream, std::string_view bytes, std::function<void()> written) {
  sink(stream).write(bytes, std::move(written));
}

TerminalSize JobOutput::size() const { return terminal_size(STDERR_FILENO); }

bool JobOutput::is_in_foreground() const { return ::tcgetpgrp(STDERR_FILENO) == ::getpgrp(); }

bool JobOutput::is_holding_back(size_t stream) const {
  return router_.is_holding_back(static_cast<int>(stream / 2),
                                 stream % 2 == 0 ? OutputStream::kStdout : OutputStream::kStderr);
}

bool JobOutput::is_stalled() const { return has_waiting_bytes() || unfiled_ > 0 || unlogged() > 0; }

bool JobOutput::has_waiting_bytes() const { return stdout_.is_stalled() || stderr_.is_stalled(); }

void JobOutput::wake_by(Clock::time_point time) {
  if (time >= wakes_at_) return;
  wakes_at_ = time;
  timer_.expires_at(time);
  timer_.async_wait([this](const net::error_code& error) {
    if (error) return;
    wakes_at_ = Clock::time_point::max();
    if (router_.due() <= terminal_.due())
      router_.on_time(moment());
    else
      terminal_.on_time();
    wake_by(std::min(router_.due(), terminal_.due()));
  });
}

void JobOutput::copy_to_log(int rank, OutputStream stream, std::string_view lines) {
  if (style_.log == nullptr) return;
  style_.log->write(rank, stream == OutputStream::kStderr, lines);
  flush_log_later();
}

void JobOutput::flush_log_later() {
  if (style_.log->flush() || !log_room_.is_open() || std::exchange(log_waits_, true)) return;
  log_room_.async_wait(net::asio::posix::stream_descriptor::wait_write,
                       [this](const net::error_code& error) {
                         if (error) return;
                         log_waits_ = false;
                         flush_log_later();
                         release_held();
                       });
}

void JobOutput::release(int rank, OutputStream stream, size_t size) {
  if (!has_room())
    held_.push_back({rank, stream, size});
  else if (consumed_)
    consumed_(rank, stream, size);
}

bool JobOutput::has_room() const { return unfiled_ < kUnfiledLimit && unlogged() < kUnfiledLimit; }

void JobOutput::release_held() {
  while (has_room() && !held_.empty()) {
    const Release next = held_.front();
    held_.pop_front();
    if (consumed_) consumed_(next.rank, next.stream, next.size);
  }
}

net::Task<void> JobOutput::drain() {
  terminal_.finish();
  router_.settle_tracebacks(true, moment());
  for (const auto stream : {OutputStream::kStdout, OutputStream::kStderr})
    router_.unfold(stream, true, moment());
  for (const auto& file : files_) co_await file->drain();
  co_await stdout_.drain();
  co_await stderr_.drain();
}

void JobOutput::discard_stalled() {
  std::vector<Sink*> sinks = {&stdout_, &stderr_};
  for (const auto& file : files_) sinks.push_back(file.get());
  for (Sink* sink : sinks) {
    if (sink->is_stuck()) sink->discard();
  }
}

}  // namespace hvd::launcher
