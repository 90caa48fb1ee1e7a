#include "launcher/output/log_queue.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/bytes.h"
#include "base/text.h"
#include "launcher/output/report.h"
#include "launcher/protocol/record.h"

namespace hvd::launcher {
namespace {

// If more bytes wait, drop the oldest bytes: the newest explain the job's end.
constexpr size_t kMostWaiting = 8 << 20;
constexpr size_t kPiece = 60 << 10;  // a packet has less than 64 KiB

std::string record_of(const OutputChunk& lines) { return std::string(as_text(to_record(lines))); }

std::string record_of_lost(size_t bytes) {
  return record_of(
      {.rank = -1,
       .is_error = 1,
       .bytes = line_of(cat(bytes, " bytes of output are missing here: the disk was too slow"))});
}

}  // namespace

void LogQueue::write(int rank, bool is_error, std::string_view lines) {
  while (!lines.empty() && !is_broken_) {
    size_t size = lines.size();
    if (size > kPiece) size = lines.rfind('\n', kPiece - 1) + 1;  // 0 if the piece has no newline
    if (size == 0) size = kPiece;
    const std::string_view piece = lines.substr(0, size);
    lines.remove_prefix(size);
    waiting_bytes_ += size;
    waiting_.push_back({record_of({.rank = rank,
                                   .is_error = is_error ? uint8_t{1} : uint8_t{0},
                                   .bytes = std::string(piece)}),
                        size});
    // Drop half of the data at once: a notice for each piece would fill the log.
    if (waiting_bytes_ > kMostWaiting) keep_newest(kMostWaiting / 2);
  }
  flush();
}

void LogQueue::keep_newest(size_t most) {
  while (waiting_bytes_ > most) {
    lost_ += waiting_.front().size;
    waiting_bytes_ -= waiting_.front().size;
    waiting_.pop_front();
  }
}

bool LogQueue::flush() {
  while ((!waiting_.empty() || lost_ > 0) && !is_broken_) {
    const bool is_notice = lost_ > 0;
    const std::string notice = is_notice ? record_of_lost(lost_) : "";
    const std::string& next = is_notice ? notice : waiting_.front().record;
    const ssize_t size =
        ::send(socket_.get(), next.data(), next.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == ENOBUFS)) return false;
    is_broken_ = size < 0;
    if (is_notice) {
      lost_ = 0;
      continue;
    }
    waiting_bytes_ -= waiting_.front().size;
    waiting_.pop_front();
  }
  if (!is_broken_) return true;
  waiting_.clear();
  waiting_bytes_ = 0;
  return true;
}

}  // namespace hvd::launcher
