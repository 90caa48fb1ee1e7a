#include "launcher/agent/loop/outbox.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

namespace hvd::launcher {

namespace {

// Urgent frames cannot overtake written bytes, so the outbox writes no more than a pipe holds at
// once.
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
  if (is_broken_) return;
  net::FrameHeader header = header_;
  header.type = type;
  header.stream = stream;
  header.credit = credit;
  writer_.put(header, payload, urgency);
}

void Outbox::flush() {
  while (!is_broken_ && !is_waiting_ && !is_empty()) {
    if (sent_ == unsent_.size()) {
      unsent_ = writer_.take(kBatch);
      if (cipher_ != nullptr) {
        const bool is_encrypted = cipher_->write(unsent_).ok();
        unsent_ = cipher_->take_output();
        if (!is_encrypted) {
          // The alert by which TLS says to the launcher why the link ends.
          (void)!::write(fd_, unsent_.data(), unsent_.size());
          return abandon();
        }
      }
      sent_ = 0;
    }
    const ssize_t size = ::write(fd_, unsent_.data() + sent_, unsent_.size() - sent_);
    if (size >= 0) {
      sent_ += static_cast<size_t>(size);
    } else if (errno == EAGAIN) {
      is_waiting_ = true;
      loop_.watch(fd_, EPOLLOUT, [this](uint32_t) {
        loop_.unwatch(fd_);
        is_waiting_ = false;
        flush();
      });
    } else if (errno != EINTR) {
      abandon();
    }
  }
}

void Outbox::abandon() {
  if (is_waiting_) loop_.unwatch(fd_);
  is_waiting_ = false;
  is_broken_ = true;
  writer_ = net::FrameWriter();
  unsent_.clear();
  sent_ = 0;
}

}  // namespace hvd::launcher
