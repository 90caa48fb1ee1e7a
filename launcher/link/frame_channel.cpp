#include "launcher/link/frame_channel.h"

#include <array>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr size_t kBatch = 64 << 10;

}  // namespace

void FrameChannel::put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
                       net::Urgency urgency) {
  if (is_closed_) return;
  net::FrameHeader header;
  header.type = type;
  if (job_) {
    header.job = job_->job;
    header.generation = job_->generation;
    header.host = job_->host;
  }
  header.stream = stream;
  header.credit = credit;
  writer_.put(header, payload, urgency);
  outgoing_.notify();
}

net::Task<void> FrameChannel::write() {
  while (!is_closed_) {
    if (writer_.empty()) {
      co_await outgoing_.wait();
      continue;
    }
    const Bytes batch = writer_.take(kBatch);
    const Status status = co_await duplex_->write(batch);
    // read() reports the error: the agent's last frames may still arrive, and may contain the cause.
    if (!status.ok()) co_return;
  }
}

net::Task<Status> FrameChannel::read(OnBytes on_bytes, OnFrame on_frame) {
  std::array<std::byte, kBatch> buffer;
  for (;;) {
    const auto size = co_await duplex_->read_some(buffer);
    if (is_closed_) co_return Status();
    if (!size.ok()) co_return size.error();
    if (*size == 0) co_return unavailable("the agent's end of the link was closed");
    on_bytes();
    parser_.feed(ByteView(buffer).first(*size));
    for (;;) {
      auto frame = parser_.next();
      Status status = frame.status();
      if (status.ok() && !frame->has_value()) break;
      if (status.ok()) status = on_frame(**frame);
      if (is_closed_) co_return Status();
      if (!status.ok()) co_return status;
    }
  }
}

void FrameChannel::close() {
  is_closed_ = true;
  duplex_->close();
  outgoing_.notify();
}

std::string FrameChannel::last_words() const {
  const std::string words(trim(duplex_->last_words()));
  return words.empty() ? "" : cat(" (", printable(words), ")");
}

}  // namespace hvd::launcher
