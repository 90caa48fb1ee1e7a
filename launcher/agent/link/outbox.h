// The agent's send queue: frames with the job's header, sorted by urgency, sent at the speed of the link. The callers'
// credit limits the size of the queue. The agent owns this object. Never blocks.
#pragma once

#include "base/bytes.h"
#include "launcher/agent/link/launcher_link.h"
#include "launcher/protocol/protocol.h"
#include "net/frame.h"

namespace hvd::launcher {

class Outbox {
 public:
  // `link` must outlive the outbox.
  explicit Outbox(LauncherLink& link) : link_(link) {}

  // Sets the header of all later frames.
  void address(uint64_t job, uint32_t generation, uint32_t host);
  void put(const Message& message, net::Urgency urgency = net::Urgency::kControl);
  void put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
           net::Urgency urgency);
  // Passes to the link as many bytes as the link accepts now.
  void flush();
  bool is_empty() const { return unsent_.size() == sent_ && writer_.empty(); }
  // Drops all queued frames and all frames of later calls.
  void abandon();

 private:
  LauncherLink& link_;
  net::FrameHeader header_;
  net::FrameWriter writer_;
  Bytes unsent_;
  size_t sent_ = 0;  // number of sent bytes of unsent_
  bool is_abandoned_ = false;
};

}  // namespace hvd::launcher
