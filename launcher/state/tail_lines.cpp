#include "launcher/state/tail_lines.h"

#include <utility>

namespace hvd::launcher {
namespace {

bool ends_line(std::string_view text, size_t at) {
  return text[at] == '\n' || (text[at] == '\r' && !text.substr(at + 1).starts_with('\n'));
}

// Cuts off so many lines.
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
