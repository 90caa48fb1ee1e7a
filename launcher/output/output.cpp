#include "launcher/output/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <thread>

#include "base/check.h"
#include "base/files/own_file.h"
#include "base/json_text.h"
#include "base/log/json_record.h"
#include "base/log/log_format.h"
#include "base/log/time_text.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/output/rank_errors.h"
#include "launcher/terminal/terminal_end.h"
#include "launcher/terminal/terminal_width.h"

namespace hvd::launcher {
namespace {

// How long a line without an end waits for the rest of it.
constexpr std::chrono::milliseconds kShownAfter{100};
// Ends of many ranks that come at about the same time are looked at together.
constexpr std::chrono::milliseconds kSettledAfter{20};
// As many bytes may wait for files before the ranks' output is no longer read.
constexpr size_t kUnfiledLimit = 1 << 20;

// Between two drawings of the status line and of progress bars.
constexpr std::chrono::milliseconds kDrawnEach{250};
// Lines that come together are written before it is drawn below them.
constexpr std::chrono::milliseconds kDrawnAfter{20};

bool are_one_terminal() {
  struct stat out {};
  struct stat error {};
  return ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1 &&
         ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &error) == 0 &&
         out.st_rdev == error.st_rdev;
}

// The last line of a text that ends in '\r', without that.
std::string_view last_row(std::string_view lines) {
  lines.remove_suffix(1);
  return lines.substr(lines.find_last_of("\r\n") + 1);
}

// In a report beside objects.
std::string plain_tag(int rank) { return cat("[", rank, "]<stderr>:"); }

}  // namespace

std::string padded_rank(int rank, int size) {
  const std::string text = cat(rank);
  const size_t width = cat(size - 1).size();
  return text.size() < width ? std::string(width - text.size(), '0') + text : text;
}

std::string line_tag(const SlotPlan& plan, const std::vector<int>& ranks, OutputStream stream,
                     const OutputStyle& style) {
  const Slot& slot = plan.slots[static_cast<size_t>(ranks[0])];
  std::string host = plan.hosts[static_cast<size_t>(slot.host)].name;
  const char* name = stream == OutputStream::kStdout ? "stdout" : "stderr";
  if (style.format == LineFormat::kJson) {
    return cat(",\"rank\":", slot.rank, ",\"host\":\"", json_escaped(host), "\",\"stream\":\"",
               name, "\",");
  }
  if (style.tag == "none") return "";
  if (style.tag.empty()) return cat("[", ranks_text(ranks), "]<", name, ">:");
  const bool is_one_host = std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    return plan.slots[static_cast<size_t>(rank)].host == slot.host;
  });
  if (!is_one_host) host = "*";
  std::string tag = style.tag;
  const std::pair<std::string_view, std::string> values[] = {
      {"{rank}", ranks_text(ranks)},
      {"{host}", host},
      {"{local_rank}", ranks.size() == 1 ? cat(slot.local_rank) : "*"},
      {"{stream}", name}};
  for (const auto& [key, value] : values) {
    for (size_t at = 0; (at = tag.find(key, at)) != std::string::npos; at += value.size()) {
      tag.replace(at, key.size(), value);
    }
  }
  return tag + ": ";
}

JobOutput::JobOutput(net::asio::any_io_executor executor, const SlotPlan& plan, OutputStyle style)
    : plan_(plan),
      size_(plan.size()),
      style_(std::move(style)),
      executor_(executor),
      thread_(executor),
      stdout_(executor, STDOUT_FILENO, thread_),
      stderr_(executor, STDERR_FILENO, thread_),
      tracebacks_timer_(executor),
      log_room_(executor),
      has_area_(style_.may_show_status && style_.format == LineFormat::kText &&
                log::format() != log::Format::kJson && are_one_terminal()),
      area_timer_(executor) {
  if (style_.log != nullptr) {
    UniqueFd copy(::fcntl(style_.log->socket(), F_DUPFD_CLOEXEC, 3));
    net::error_code error;  // without a copy, the next line flushes the queue
    if (copy) log_room_.assign(copy.get(), error);
    if (copy && !error) static_cast<void>(copy.release());
  }
  if (style_.folds_tracebacks) tracebacks_ = std::make_unique<TracebackFolder>();
  if (style_.folds) {
    for (auto& each : folding_) each = std::make_unique<Folding>(executor, size_);
  }
  for (int rank = 0; rank < size_; ++rank) open_channels(rank);
  // A stalled standard error does not matter to other threads.
  log::set_writer([this, thread = std::this_thread::get_id()](std::string_view line) {
    if (std::this_thread::get_id() != thread) {
      if (const std::string erased = area_state_->interrupt(); !erased.empty())
        std::fputs(erased.c_str(), stderr);
      return false;
    }
    begin_line();
    put(OutputStream::kStderr, line);
    copy_to_log(-1, OutputStream::kStderr, line);
    return true;
  });
}

JobOutput::~JobOutput() { log::set_writer({}); }

std::string JobOutput::shown_tag(const std::vector<int>& ranks, OutputStream stream) const {
  // Red is for errors, and black or white is the background.
  constexpr int kColors[] = {36, 33, 32, 35, 34};
  std::string tag = line_tag(plan_, ranks, stream, style_);
  // Files get the same lines.
  const bool is_plain =
      !style_.directory.empty() || tag.empty() || style_.format != LineFormat::kText;
  const int fd = stream == OutputStream::kStdout ? STDOUT_FILENO : STDERR_FILENO;
  if (is_plain || !style_.colors.holds_for(fd)) return tag;
  return cat("\x1b[", kColors[static_cast<size_t>(ranks[0]) % std::size(kColors)], "m", tag,
             kColorEnd);
}

void JobOutput::open_channels(int rank) {
  const bool is_terminal =
      style_.format == LineFormat::kText && !style_.folds && ::isatty(STDOUT_FILENO) == 1;
  const auto index = static_cast<size_t>(rank);
  const bool is_shown =
      style_.is_shown.empty() || (index < style_.is_shown.size() && style_.is_shown[index]);
  for (const auto stream : {OutputStream::kStdout, OutputStream::kStderr}) {
    channels_.emplace_back(channels_.size(), shown_tag({rank}, stream), style_.format, is_shown);
    if (style_.format == LineFormat::kJson) channels_.back().plain.set_tag(plain_tag(rank));
    const bool is_asking = is_terminal && is_shown && rank == style_.asking_rank;
    if (is_asking &&
        ::isatty(stream == OutputStream::kStdout ? STDOUT_FILENO : STDERR_FILENO) == 1) {
      channels_.back().soon = std::make_unique<net::asio::steady_timer>(executor_);
    }
  }
}

Result<std::unique_ptr<JobOutput>> JobOutput::open(net::asio::any_io_executor executor,
                                                   const SlotPlan& plan, OutputStyle style) {
  std::unique_ptr<JobOutput> output(new JobOutput(std::move(executor), plan, std::move(style)));
  for (int rank = 0; rank < output->size_; ++rank)
    HVD_RETURN_IF_ERROR(output->open_files(rank, true));
  return output;
}

void JobOutput::grow() {
  while (size_ < plan_.size()) {
    open_channels(size_);
    (void)open_files(size_++, false);
  }
  for (auto& each : folding_) {
    if (each) each->lines.grow(size_);
  }
}

Status JobOutput::open_files(int rank, bool waits) {
  if (style_.directory.empty()) return {};
  const auto folder =
      std::filesystem::path(style_.directory) / cat("rank.", padded_rank(rank, size_));
  UniqueFd own_folder;
  if (waits) {
    std::error_code error;
    std::filesystem::create_directories(style_.directory, error);
    if (error) return system_error(cat("cannot make directory ", style_.directory), error.value());
    HVD_ASSIGN_OR_RETURN(own_folder, open_own_folder(folder.string()));
  }
  for (const auto stream : {OutputStream::kStdout, OutputStream::kStderr}) {
    Channel& target = channel(rank, stream);
    const char* const name = stream == OutputStream::kStdout ? "stdout" : "stderr";
    target.path = folder / name;
    const int how = style_.is_continued ? O_APPEND : O_TRUNC;
    if (waits) {
      HVD_ASSIGN_OR_RETURN(const UniqueFd file,
                           open_own_file_in(own_folder, name, how, target.path));
      // The sink needs a descriptor of its own, since `file` closes.
      const UniqueFd second(::fcntl(file.get(), F_DUPFD_CLOEXEC, 3));
      if (!second) return system_error(cat("cannot write to ", target.path), errno);
      target.file = std::make_unique<Sink>(executor_, file.get(), thread_);
    } else {
      target.file = std::make_unique<Sink>(executor_, target.path, how, thread_);
    }
    target.file->on_broken([this, &target](int error) {
      print(system_error(cat("cannot write to ", target.path), error).message());
    });
  }
  return {};
}

JobOutput::Channel& JobOutput::channel(int rank, OutputStream stream) {
  HVD_CHECK(rank >= 0 && rank < size_);
  return channels_[2 * static_cast<size_t>(rank) + (stream == OutputStream::kStderr ? 1 : 0)];
}

void JobOutput::on_broken(Broken callback) {
  stdout_.on_broken([callback](int error) { callback(OutputStream::kStdout, error); });
  stderr_.on_broken([callback](int error) { callback(OutputStream::kStderr, error); });
}

std::string JobOutput::stamped(const std::string& tag) const {
  if (style_.format == LineFormat::kJson) return json_time() + tag;
  constexpr std::string_view kTime = "{time}";
  std::string filled =
      style_.has_timestamps ? time_text("%a %b %e %H:%M:%S %Y", TimeZone::kLocal) : "";
  filled += tag;
  const std::string time = tag.find(kTime) == std::string::npos ? "" : iso_time(TimeZone::kLocal);
  for (size_t at = 0; (at = filled.find(kTime, at)) != std::string::npos; at += time.size()) {
    filled.replace(at, kTime.size(), time);
  }
  return filled;
}

void JobOutput::stamp(Channel& channel) {
  const bool has_time = style_.has_timestamps || style_.tag.find("{time}") != std::string::npos;
  if (style_.format == LineFormat::kText && !has_time) return;
  channel.tagger.set_tag(stamped(channel.tag));
}

void JobOutput::keep(int rank, OutputStream stream, std::string_view lines, ByteView bytes) {
  Channel& channel = this->channel(rank, stream);
  constexpr size_t kRecent = 16 * 1024;  // a traceback through a framework
  if (!lines.empty()) copy_to_file(channel, lines);
  if (style_.log != nullptr && channel.tag.ends_with(kColorEnd))
    copy_to_log(rank, stream, without_tag_colors(lines));
  else
    copy_to_log(rank, stream, lines);
  if (stream != OutputStream::kStderr) return;
  std::string text;
  if (style_.format == LineFormat::kJson) {  // within a sentence no objects are wanted
    if (bytes.empty())
      channel.plain.finish(text);
    else
      channel.plain.feed(as_text(bytes), text);
    lines = text;
  }
  channel.recent.append(lines.substr(lines.size() - std::min(lines.size(), kRecent)));
  if (channel.recent.size() > 2 * kRecent) {
    channel.recent.erase(0, channel.recent.size() - kRecent);
  }
}

std::string JobOutput::last_errors(int rank) const {
  return last_lines(channels_[2 * static_cast<size_t>(rank) + 1].recent, tag_size(rank));
}

std::string JobOutput::last_exception(int rank) const {
  return exception_of(channels_[2 * static_cast<size_t>(rank) + 1].recent, tag_size(rank));
}

// The length of the tag of each line in `recent`.
size_t JobOutput::tag_size(int rank) const {
  if (style_.format == LineFormat::kJson) return plain_tag(rank).size();
  return stamped(channels_[2 * static_cast<size_t>(rank) + 1].tag).size();
}

void JobOutput::write(int rank, OutputStream stream, ByteView bytes) {
  Channel& from = channel(rank, stream);
  stamp(from);
  std::string lines;
  lines.reserve(bytes.size() + 64);
  const std::string prefix = from.soon || has_area_ ? from.tagger.prefix() : "";
  from.tagger.feed(as_text(bytes), lines);
  const auto consumed = [this, rank, stream, size = bytes.size()] { release(rank, stream, size); };
  keep(rank, stream, lines, bytes);
  if (from.is_shown && folding(stream)) return fold(rank, stream, bytes);
  if (from.is_shown && has_area_) lines = take_bars(from, lines, prefix);
  if (from.is_shown) lines = pass(rank, stream, std::move(lines), from.shown > 0);
  // The bytes held of an unfinished line are bounded by the limit of a line.
  if (lines.empty() || !from.is_shown)
    consumed();
  else
    show(from, stream, prefix, lines, consumed);
  if (from.soon) show_soon(from, stream);
}

// Whole lines, of which the first may stand on the terminal in part.
void JobOutput::show(Channel& from, OutputStream stream, std::string_view prefix,
                     std::string_view lines, std::function<void()> written) {
  make_way();
  from.has_cleared = false;
  has_raw_bar_ = lines.ends_with('\r');
  is_raw_movable_ = has_area_ && has_raw_bar_ && is_movable_bar(last_row(lines));
  raw_bar_ = &from;
  if (asking_ == &from) asking_ = nullptr;
  const size_t shown = std::exchange(from.shown, 0);
  const bool goes_on = open_line_ == &from;
  if (!goes_on) end_open_line();
  open_line_ = nullptr;
  std::string rest;
  if (shown > 0) {
    lines.remove_prefix(prefix.size() + shown);
    // Another line has ended this one already.
    if (!goes_on && lines.starts_with('\n'))
      lines.remove_prefix(1);
    else if (!goes_on)
      rest = prefix;
  }
  rest += lines;
  if (!rest.empty())
    put(stream, rest, std::move(written), static_cast<int>(from.key / 2));
  else if (written)
    written();
}

// A question does not wait for the end of its line.
void JobOutput::show_soon(Channel& from, OutputStream stream) {
  if (from.tagger.held().size() <= from.shown || std::exchange(from.is_waiting, true)) return;
  from.soon->expires_after(kShownAfter);
  from.soon->async_wait([this, &from, stream](const net::error_code& error) {
    if (error) return;
    from.is_waiting = false;
    const std::string& held = from.tagger.held();
    if (held.size() <= from.shown || is_held_back(from, stream)) return;
    if (has_area_ && from.shown == 0) {
      if (is_of_colors(held)) return write_colors(held);
      if (from.has_cleared && is_cleared_bar(held)) return;
    }
    if (area_.has_bar(from.key)) {
      if (is_movable_bar(held)) return;  // the bar shows the text
      end_bar(from, stream);
    }
    make_way();
    const bool goes_on = open_line_ == &from;
    if (!goes_on) end_open_line();
    sink(stream).write(cat(goes_on ? "" : from.tagger.prefix(), held.substr(from.shown)));
    from.shown = held.size();
    open_line_ = &from;
    asking_ = &from;
    open_stream_ = stream;
  });
}

void JobOutput::end_open_line() {
  if (std::exchange(open_line_, nullptr) != nullptr) sink(open_stream_).write("\n");
}

void JobOutput::end_typed_line() {
  if (style_.format != LineFormat::kText || ::isatty(STDERR_FILENO) != 1) return;
  if (area_.is_shown()) return make_way();  // it stands behind the line
  sink(OutputStream::kStderr).write("\n");
}

void JobOutput::line_was_typed() {
  open_line_ = nullptr;
  asking_ = nullptr;
  make_way(1);
}

// Neither colors nor the blanks that clear a bar are a line.
bool JobOutput::ends_blank(const Channel& from) const {
  const std::string& held = from.tagger.held();
  return has_area_ && from.shown == 0 &&
         (is_of_colors(held) || (from.has_cleared && is_cleared_bar(held)));
}

void JobOutput::end(int rank, OutputStream stream) {
  Channel& from = channel(rank, stream);
  std::string lines;
  stamp(from);
  const std::string prefix = from.tagger.prefix();
  const std::string held = from.tagger.held();
  const bool is_blank = ends_blank(from);
  if (is_blank) end_bar(from, stream);
  area_.take_bar(from.key);  // the last line replaces it
  from.tagger.finish(lines);
  keep(rank, stream, lines, {});
  if (from.is_shown && folding(stream)) {
    if (!lines.empty()) fold(rank, stream, {});
  } else if (from.is_shown) {
    lines = pass(rank, stream, std::move(lines), from.shown > 0);
    if (is_blank)
      write_colors(held);
    else if (!lines.empty())
      show(from, stream, prefix, lines);
  }
  leave_terminal(from);
  if (from.file) from.file->end();
  if (!tracebacks_ || stream != OutputStream::kStderr) return;
  tracebacks_->output_ended(rank);
  settle_tracebacks_by(Clock::now() + kSettledAfter);
}

void JobOutput::leave_terminal(const Channel& from) {
  if (open_line_ == &from) end_open_line();
  if (asking_ == &from) asking_ = nullptr;
  if (!has_area_ || !has_raw_bar_ || raw_bar_ != &from) return;
  has_raw_bar_ = false;
  sink(OutputStream::kStdout).write("\n");
}

void JobOutput::forget(int rank) {
  for (const auto stream : {OutputStream::kStdout, OutputStream::kStderr}) {
    Channel& from = channel(rank, stream);
    end_bar(from, stream);
    leave_terminal(from);
  }
}

std::string JobOutput::pass(int rank, OutputStream stream, std::string lines, bool is_begun) {
  if (!tracebacks_ || stream != OutputStream::kStderr || lines.empty()) return lines;
  const size_t tag = style_.folds ? 0 : tag_size(rank);
  std::string shown = tracebacks_->add(rank, lines, tag, is_begun, Clock::now());
  if (tracebacks_->is_holding(rank)) settle_tracebacks_by(Clock::now() + kHeldFor);
  return shown;
}

void JobOutput::rank_ended(int rank, TracebackFolder::End how) {
  if (!tracebacks_) return;
  tracebacks_->ended(rank, how);
  settle_tracebacks_by(Clock::now() + kSettledAfter);
}

void JobOutput::settle_tracebacks(bool all) {
  if (!tracebacks_) return;
  for (const auto& [rank, lines] : tracebacks_->take(Clock::now(), all)) {
    if (folding(OutputStream::kStderr))
      fold_lines(rank, OutputStream::kStderr, lines);
    else
      show(channel(rank, OutputStream::kStderr), OutputStream::kStderr, "", lines);
  }
  if (folding(OutputStream::kStderr)) unfold(OutputStream::kStderr, false);
  const std::string sentence = tracebacks_->take_sentence(Clock::now(), all);
  if (!sentence.empty()) print(cat(sentence, " (--verbose prints all tracebacks)"));
  settle_tracebacks_by(tracebacks_->deadline().time());
}

void JobOutput::settle_tracebacks_by(Clock::time_point time) {
  if (time >= settled_by_) return;
  settled_by_ = time;
  tracebacks_timer_.expires_at(time);
  tracebacks_timer_.async_wait([this](const net::error_code& error) {
    if (error) return;
    settled_by_ = Clock::time_point::max();
    settle_tracebacks(false);
  });
}

void JobOutput::fold(int rank, OutputStream stream, ByteView bytes) {
  LineFolder& folder = folding(stream)->lines;
  std::string lines;
  if (bytes.empty())
    channel(rank, stream).plain.finish(lines);
  else
    channel(rank, stream).plain.feed(as_text(bytes), lines);
  lines = pass(rank, stream, std::move(lines), false);
  if (lines.empty()) {
    release(rank, stream, bytes.size());
    return;
  }
  fold_lines(rank, stream, lines);
  if (!folder.consume(rank, bytes.size())) release(rank, stream, bytes.size());
  unfold(stream, false);
}

void JobOutput::fold_lines(int rank, OutputStream stream, std::string_view lines) {
  while (!lines.empty()) {
    size_t end = lines.find_first_of("\r\n");
    end += lines.substr(end).starts_with("\r\n") ? 2 : 1;
    folding(stream)->lines.add(rank, lines.substr(0, end), Clock::now());
    lines.remove_prefix(end);
  }
}

void JobOutput::unfold(OutputStream stream, bool all) {
  Folding& folding = *this->folding(stream);
  FoldedLine folded;
  while (folding.lines.take(Clock::now(), all, folded)) {
    make_way();
    has_raw_bar_ = folded.line.ends_with('\r');
    is_raw_movable_ = false;
    raw_bar_ = nullptr;
    const std::string tag = stamped(shown_tag(folded.ranks, stream));
    const auto written = [this, stream, shown = folded.consumed] {
      for (const auto& [rank, size] : shown) {
        release(rank, stream, size);
      }
    };
    put(stream, tag + folded.line, written, folded.ranks.size() == 1 ? folded.ranks[0] : -1);
  }
  if (folding.lines.is_empty() || std::exchange(folding.is_waiting, true)) return;
  folding.timer.expires_after(kFoldFor);
  folding.timer.async_wait([this, stream](const net::error_code& error) {
    if (error) return;
    this->folding(stream)->is_waiting = false;
    unfold(stream, false);
  });
}

void JobOutput::copy_to_file(Channel& channel, std::string_view lines) {
  if (!channel.file) return;
  unfiled_ += lines.size();
  channel.file->write(lines, [this, size = lines.size()] {
    unfiled_ -= size;
    release_held();
  });
}

void JobOutput::put(OutputStream stream, std::string_view bytes, std::function<void()> written,
                    int rank) {
  if (!style_.is_shown_by_log) return sink(stream).write(bytes, std::move(written));
  style_.log->write(rank, stream == OutputStream::kStderr, bytes);
  flush_log_later();
  if (written) written();
}

void JobOutput::copy_to_log(int rank, OutputStream stream, std::string_view lines) {
  if (style_.log == nullptr || style_.is_shown_by_log) return;
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

void JobOutput::show_status(std::string_view line) {
  if (!has_area_) return;
  status_ = line;
  area_.set_line(alarm_.empty() ? status_ : alarm_);
  draw_area();
}

void JobOutput::show_alarm(std::string_view line) {
  if (alarm_ == line) return;
  alarm_ = line;
  show_status(status_);
}

bool JobOutput::is_in_foreground() { return ::tcgetpgrp(STDERR_FILENO) == ::getpgrp(); }

void JobOutput::draw_area() {
  if (!has_area_ || area_waits_) return;
  // A prompt, or a bar that moves the cursor, stands where the area would be.
  if (asking_ != nullptr || has_raw_bar_ || open_line_ != nullptr) return;
  const auto next = area_drawn_ + kDrawnEach;
  if (area_.is_empty()) {
    if (area_.is_shown()) make_way();
    return;
  }
  if (next > Clock::now()) {
    area_waits_ = true;
    area_timer_.expires_at(next);
    area_timer_.async_wait([this](const net::error_code& error) {
      if (error) return;
      area_waits_ = false;
      draw_area();
    });
    return;
  }
  // A terminal that takes no output gets the newest state afterwards.
  if (stdout_.is_stalled() || stderr_.is_stalled() || !is_in_foreground()) return;
  if (area_state_->was_interrupted()) area_.forget();
  const std::string bytes = area_.show(terminal_size(STDERR_FILENO));
  if (bytes.empty()) return;
  area_state_->set_shown(true);
  erase_at_death(area_.rows());
  area_drawn_ = Clock::now();
  sink(OutputStream::kStderr).write(bytes);
}

std::string JobOutput::erase_area(size_t below) {
  if (area_state_->was_interrupted()) area_.forget();
  area_state_->set_shown(false);
  erase_at_death(0);
  return area_.erase(terminal_width(STDERR_FILENO), below);
}

void JobOutput::make_way(size_t below) {
  if (!has_area_) return;
  const std::string bytes = erase_area(below);
  if (!bytes.empty()) sink(OutputStream::kStderr).write(bytes);
  // The caller writes first.
  if (area_.is_empty() || area_waits_) return;
  area_waits_ = true;
  area_timer_.expires_at(std::max(area_drawn_ + kDrawnEach, Clock::now() + kDrawnAfter));
  area_timer_.async_wait([this](const net::error_code& error) {
    if (error) return;
    area_waits_ = false;
    draw_area();
  });
}

void JobOutput::withdraw_status() {
  const std::string bytes = erase_area();
  if (!bytes.empty()) sink(OutputStream::kStderr).write(bytes);
}

void JobOutput::print(std::string_view sentence, Tone tone) {
  begin_line();
  if (style_.folds) unfold(OutputStream::kStderr, true);
  if (style_.format == LineFormat::kText) {
    put(OutputStream::kStderr, shown_line(sentence, tone));
    return copy_to_log(-1, OutputStream::kStderr, line_of(sentence));
  }
  const std::string records = json_records("horovodrun", "", sentence);
  put(OutputStream::kStderr, records);
  copy_to_log(-1, OutputStream::kStderr, records);
}

void JobOutput::begin_line() {
  make_way();
  end_open_line();
  has_raw_bar_ = false;
}

namespace {

// The first line of the text, with its end: "\n", "\r\n", or '\r' behind a bar. Removes it.
std::string_view take_row(std::string_view& rest) {
  size_t end = rest.find_first_of("\r\n");
  end += rest.substr(end).starts_with("\r\n") ? 2 : 1;
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end);
  return line;
}

}  // namespace

// Makes room for the bars of this channel. Without a place for them, held ones become lines.
bool JobOutput::is_area_visible(const Channel& from) {
  if (!is_in_foreground()) {
    end_bars();
    return false;
  }
  if (has_raw_bar_ && is_raw_movable_) {
    has_raw_bar_ = false;
    sink(OutputStream::kStdout).write(raw_bar_ == &from ? "\r\x1b[K" : "\n");
  }
  return true;
}

std::string JobOutput::take_bars(Channel& from, const std::string& lines, std::string_view prefix) {
  const size_t key = from.key;
  const bool has_bars = lines.find('\r') != std::string::npos || area_.has_bar(key);
  if (!has_bars || !is_area_visible(from)) return lines;
  std::string others;
  std::string_view rest = lines;
  bool is_first = true;
  bool begins_bar = false;  // the last line is a lone '\r'
  while (!rest.empty()) {
    const std::string_view line = take_row(rest);
    const bool is_bar = line.ends_with('\r');
    if (!is_bar || !is_movable_bar(line.substr(0, line.size() - 1))) {
      const std::string bar = area_.take_bar(key);  // this line replaces it
      // A lone newline came after the '\r' before it: both end one line.
      others += is_first && line == "\n" ? cat(bar, line) : std::string(line);
    } else {
      if (is_first && from.shown > 0) take_back(from, prefix.size() + from.shown);
      set_bar(from, prefix, line.substr(0, line.size() - 1));
    }
    begins_bar = is_bar && line.size() == prefix.size() + 1;
    is_first = false;
  }
  if (area_.has_bar(key) || begins_bar) set_held_bar(from, prefix);
  if (others.empty()) draw_area();
  return others;
}

// The text behind the '\r' of a bar is its next state, unless a newline comes.
void JobOutput::set_held_bar(Channel& from, std::string_view prefix) {
  const std::string& held = from.tagger.held();
  if (is_movable_bar(held) && !is_of_colors(held)) set_bar(from, prefix, cat(prefix, held));
}

void JobOutput::set_bar(Channel& from, std::string_view prefix, std::string_view text) {
  const std::string_view rest = text.substr(text.starts_with(prefix) ? prefix.size() : 0);
  if (is_of_colors(rest) && area_.has_bar(from.key)) {
    const std::string bar = area_.take_bar(from.key);
    area_.set_bar(from.key, bar.ends_with(rest) ? bar : cat(bar, rest));
  } else if (is_of_colors(rest) || is_cleared_bar(rest)) {
    from.has_cleared |= !area_.take_bar(from.key).empty();
    write_colors(rest);
  } else {
    from.has_cleared = false;
    area_.set_bar(from.key, text);
  }
}

void JobOutput::write_colors(std::string_view text) {
  const std::string colors = colors_in(text);
  if (!colors.empty()) sink(OutputStream::kStdout).write(colors);
}

// Removes the beginning of a bar from the terminal, where it was shown like a question.
void JobOutput::take_back(Channel& from, size_t width) {
  if (asking_ == &from) asking_ = nullptr;
  from.shown = 0;
  if (open_line_ != &from) return;  // another line has ended it
  open_line_ = nullptr;
  sink(open_stream_).write(width < terminal_width(STDERR_FILENO) ? "\r\x1b[K" : "\n");
}

// The bar is written once, as it was last.
void JobOutput::end_bar(Channel& from, OutputStream stream) {
  const std::string text = area_.take_bar(from.key);
  if (!text.empty()) show(from, stream, "", text + "\n");
}

void JobOutput::end_bars() {
  const std::string bars = area_.take_bars();
  if (bars.empty()) return;
  make_way();
  end_open_line();
  sink(OutputStream::kStdout).write(bars);
}

void JobOutput::end_hidden_bars() {
  if (has_area_ && !is_in_foreground()) end_bars();
}

// An unfinished line does not come before the lines that are held back.
bool JobOutput::is_held_back(const Channel& from, OutputStream stream) const {
  if (!tracebacks_ || stream != OutputStream::kStderr) return false;
  for (int rank = 0; rank < size_; ++rank) {
    if (&channels_[2 * static_cast<size_t>(rank) + 1] == &from)
      return tracebacks_->is_holding(rank);
  }
  return false;
}

net::Task<void> JobOutput::drain() {
  area_.set_line("");
  make_way();
  end_open_line();
  end_bars();
  settle_tracebacks(true);
  for (const auto stream : {OutputStream::kStdout, OutputStream::kStderr}) {
    if (folding(stream)) unfold(stream, true);
  }
  for (const Channel& each : channels_) {
    if (each.file) co_await each.file->drain();
  }
  co_await stdout_.drain();
  co_await stderr_.drain();
}

void JobOutput::discard_stalled() {
  std::vector<Sink*> sinks = {&stdout_, &stderr_};
  for (const Channel& each : channels_) sinks.push_back(each.file.get());
  for (Sink* sink : sinks) {
    if (sink != nullptr && sink->is_stuck()) sink->discard();
  }
}

}  // namespace hvd::launcher
