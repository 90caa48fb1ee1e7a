#include "launcher/agent/link/outbox.h"

#include <algorithm>

namespace hvd::launcher {

namespace {

// Urgent frames cannot overtake bytes that are already written, so the outbox writes at most as many bytes as a pipe
// holds.
constexpr size_t kBatch = 64 << 10;

}  // namespace

void Outbox::address(uint64_t job, uint32_t generation, uint32_t host) {
  header_.job = job;
  header_.generation = generation;
  header_.host = host;
}

void Outbox::put(const Message& message, net::Urgency urgency) {
  put(net::FrameType::kControl, 0, 0, encode(message), urgency);
}

void Outbox::put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
                 net::Urgency urgency) {
  if (is_abandoned_) return;
  net::FrameHeader header = header_;
  header.type = type;
  header.stream = stream;
  header.credit = credit;
  writer_.put(header, payload, urgency);
}

void Outbox::flush() {
  while (!is_abandoned_) {
    link_.flush();
    if (is_empty()) return;
    if (sent_ == unsent_.size()) {
      unsent_ = writer_.take(kBatch);
      sent_ = 0;
    }
    const size_t size = std::min(link_.room(), unsent_.size() - sent_);
    if (size == 0) return;
    link_.send(ByteView(unsent_).subspan(sent_, size));
    sent_ += size;
  }
}

void Outbox::abandon() {
  is_abandoned_ = true;
  writer_ = net::FrameWriter();
  unsent_.clear();
  sent_ = 0;
}

}  // namespace hvd::launcher
