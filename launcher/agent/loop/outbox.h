// The agent's send queue: frames with the job's header, by urgency, at the speed of the link. The
// callers' credit bounds its size. The agent owns it. Never blocks.
#pragma once

#include "base/bytes.h"
#include "launcher/agent/loop/cipher.h"
#include "launcher/protocol/protocol.h"
#include "net/event_loop.h"
#include "net/frame.h"

namespace hvd::launcher {

class Outbox {
 public:
  // `fd` carries the link's output, encrypted by `cipher` unless that is null. All three must
  // outlive the outbox.
  Outbox(net::EventLoop& loop, int fd, Cipher* cipher = nullptr)
      : loop_(loop), fd_(fd), cipher_(cipher) {}

  // Sets the header of all frames from now on.
  void address(uint64_t job, uint32_t generation, uint32_t host);
  void put(const Message& message, net::Urgency urgency = net::Urgency::kControl);
  void put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
           net::Urgency urgency);
  // Writes as much as the link takes now. The loop writes the rest once the link is writable.
  void flush();
  bool is_empty() const { return unsent_.size() == sent_ && writer_.empty(); }
  // True after a write has failed: the link is broken.
  bool is_broken() const { return is_broken_; }
  // Drops all queued frames, and those that are queued later.
  void abandon();

 private:
  net::EventLoop& loop_;
  int fd_;
  Cipher* cipher_;
  net::FrameHeader header_;
  net::FrameWriter writer_;
  Bytes unsent_;
  size_t sent_ = 0;  // bytes of unsent_
  bool is_waiting_ = false;
  bool is_broken_ = false;
};

}  // namespace hvd::launcher
