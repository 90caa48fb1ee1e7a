#include "launcher/state/log_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/files/whole_io.h"
#include "base/text.h"
#include "launcher/output/report.h"
#include "launcher/protocol/record.h"
#include "launcher/state/state_folder.h"

namespace hvd::launcher {
namespace {

// The maximum size of a record.
constexpr size_t kMaxRecord = 1 << 20;
constexpr size_t kReadSize = 256 << 10;

}  // namespace

void LogFiles::write(const OutputChunk& lines) {
  if (lost_ > 0) finish();
  if (lost_ > 0 || !append(lines)) lost_ += lines.bytes.size();
}

void LogFiles::finish() {
  if (lost_ == 0) return;
  const std::string notice =
      line_of(cat(lost_, " bytes of output are missing here: they could not be written to disk: ",
                  std::strerror(error_)));
  if (append({.rank = -1, .is_error = 1, .bytes = notice})) lost_ = 0;
}

bool LogFiles::drop_oldest() {
  if (files_.empty()) return false;
  // Close the file first: an open file keeps its blocks.
  if (files_.size() == 1) file_.reset();
  drop_file(files_.front());
  return true;
}

void LogFiles::begin_again() {
  file_.reset();
  files_.clear();
}

bool LogFiles::append(const OutputChunk& lines) {
  const Bytes record = to_record(lines);
  if (size_ + record.size() > limits_.file_size) file_.reset();
  while (!((file_ || begin_file()) && append(record))) {
    error_ = errno;
    const bool is_full = error_ == ENOSPC || error_ == EDQUOT || error_ == EFBIG;
    if (!is_full || !drop_oldest()) return false;
  }
  return true;
}

bool LogFiles::begin_file() {
  const std::string name = cat(next_);
  file_.reset(::openat(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                       S_IRUSR | S_IWUSR));
  if (!file_) return false;
  size_ = 0;
  files_.push_back(next_++);
  if (files_.size() > limits_.files) drop_file(files_.front());
  return true;
}

bool LogFiles::append(ByteView record) {
  if (write_all(file_.get(), as_text(record))) {
    size_ += record.size();
    return true;
  }
  const int error = errno;
  // Readers cannot read beyond a partial record. The next record therefore begins another file.
  file_.reset();
  if (size_ == 0) drop_file(files_.back());
  errno = error;
  return false;
}

void LogFiles::drop_file(uint64_t number) {
  std::erase(files_, number);
  ::unlinkat(folder_.get(), cat(number).c_str(), 0);
}

Result<std::optional<OutputChunk>> take_lines(std::string_view& bytes) {
  HVD_ASSIGN_OR_RETURN(auto message, take_record(bytes));
  if (!message && bytes.size() > kMaxRecord) return invalid_argument("a record is too large");
  if (!message) return std::optional<OutputChunk>();
  OutputChunk* const chunk = std::get_if<OutputChunk>(&*message);
  if (chunk == nullptr) return invalid_argument("a record holds no lines");
  return std::optional<OutputChunk>(std::move(*chunk));
}

std::optional<OutputChunk> LogReader::next() {
  for (;;) {
    if (std::exchange(has_gap_, false)) {
      return OutputChunk{
          .rank = -1,
          .is_error = 1,
          .bytes = line_of("older output is missing here: there was no room for it")};
    }
    std::string_view rest = std::string_view(bytes_).substr(position_);
    const size_t before = rest.size();
    auto chunk = take_lines(rest);
    position_ += before - rest.size();
    if (chunk.ok() && *chunk) return std::move(**chunk);
    if (!chunk.ok()) {
      is_damaged_ = true;
      bytes_.clear();
      position_ = 0;
    }
    if (!read_more() && !go_to_next_file()) return {};
  }
}

bool LogReader::read_more() {
  if (!file_ || is_damaged_) return false;
  bytes_.erase(0, std::exchange(position_, 0));
  const size_t held = bytes_.size();
  bytes_.resize(held + kReadSize);
  ssize_t size = 0;
  do {
    size = ::read(file_.get(), bytes_.data() + held, kReadSize);
  } while (size < 0 && errno == EINTR);
  bytes_.resize(held + (size > 0 ? static_cast<size_t>(size) : 0));
  return size > 0;
}

bool LogReader::go_to_next_file() {
  int64_t next = -1;
  for (const std::string& name : entries_of(folder_)) {
    const auto number = parse_int(name);
    if (number && *number > number_ && (next < 0 || *number < next)) next = *number;
  }
  if (next < 0) return false;
  // The file is complete if a newer file exists.
  if (read_more()) return true;
  has_gap_ = number_ >= 0 && next != number_ + 1;
  begins_late_ |= number_ < 0 && next != 0;
  number_ = next;
  bytes_.clear();
  position_ = 0;
  is_damaged_ = false;
  file_.reset(
      ::openat(folder_.get(), cat(next).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return true;
}

namespace {

bool ends_line(std::string_view text, size_t at) {
  return text[at] == '\n' || (text[at] == '\r' && !text.substr(at + 1).starts_with('\n'));
}

void skip_lines(std::string& text, size_t lines) {
  size_t at = 0;
  for (; lines > 0 && at < text.size(); ++at) lines -= ends_line(text, at) ? 1 : 0;
  text.erase(0, at);
}

}  // namespace

size_t count_lines(std::string_view text) {
  size_t lines = 0;
  for (size_t at = text.find_first_of("\r\n"); at != std::string_view::npos;
       at = text.find_first_of("\r\n", at + 1)) {
    lines += ends_line(text, at) ? 1 : 0;
  }
  return lines;
}

void TailLines::add(OutputChunk chunk) {
  lines_ += count_lines(chunk.bytes);
  pieces_.push_back(std::move(chunk));
  while (lines_ > most_) {
    OutputChunk& first = pieces_.front();
    const size_t lines = count_lines(first.bytes);
    if (lines_ - lines < most_) {
      dropped_ += lines_ - most_;
      skip_lines(first.bytes, lines_ - most_);
      lines_ = most_;
    } else {
      lines_ -= lines;
      dropped_ += lines;
      pieces_.pop_front();
    }
  }
}

std::deque<OutputChunk> TailLines::take() {
  lines_ = 0;
  return std::exchange(pieces_, {});
}

}  // namespace hvd::launcher
