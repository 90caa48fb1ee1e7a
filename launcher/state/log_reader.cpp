#include "launcher/state/log_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/text.h"
#include "launcher/output/report.h"
#include "launcher/protocol/record.h"
#include "launcher/state/state_folder.h"

namespace hvd::launcher {
namespace {

// An upper limit for the size of a record.
constexpr size_t kMaxRecord = 1 << 20;
constexpr size_t kReadSize = 256 << 10;

}  // namespace

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

// Removes the first `lines` lines.
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
