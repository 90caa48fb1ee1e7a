#include "launcher/output/log_queue.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/bytes.h"
#include "base/text.h"
#include "launcher/output/report.h"
#include "launcher/protocol/record.h"

namespace hvd::launcher {
namespace {

// As many bytes may wait before some are lost. Errors and the launcher's lines have more room: they explain an end.
constexpr size_t kMostWaiting = 8 << 20;
constexpr size_t kMostWaitingErrors = 9 << 20;
constexpr size_t kPiece = 60 << 10;  // a packet has less than 64 KiB

}  // namespace

void LogQueue::write(int rank, bool is_error, std::string_view lines) {
  while (!lines.empty() && !is_broken_) {
    size_t size = lines.size();
    if (size > kPiece) size = lines.rfind('\n', kPiece - 1) + 1;  // 0 without any
    if (size == 0) size = kPiece;
    const std::string_view piece = lines.substr(0, size);
    lines.remove_prefix(size);
    if (waiting_bytes_ + size > (is_error ? kMostWaitingErrors : kMostWaiting)) {
      lost_ += size;
      continue;
    }
    if (lost_ > 0) {
      push({.rank = -1,
            .is_error = 1,
            .bytes =
                line_of(cat(lost_, " bytes of output are missing here: the disk was too slow"))});
      lost_ = 0;
    }
    push({.rank = rank,
          .is_error = is_error ? uint8_t{1} : uint8_t{0},
          .bytes = std::string(piece)});
  }
  flush();
}

void LogQueue::push(const OutputChunk& lines) {
  waiting_bytes_ += lines.bytes.size();
  waiting_.push_back({std::string(as_text(to_record(lines))), lines.bytes.size()});
}

bool LogQueue::flush() {
  while (!waiting_.empty() && !is_broken_) {
    const Packet& next = waiting_.front();
    const ssize_t size =
        ::send(socket_.get(), next.record.data(), next.record.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == ENOBUFS)) return false;
    is_broken_ = size < 0;
    waiting_bytes_ -= next.size;
    waiting_.pop_front();
  }
  if (!is_broken_) return true;
  waiting_.clear();
  waiting_bytes_ = 0;
  return true;
}

}  // namespace hvd::launcher
