// The agent's send queue: frames with the job's header, sorted by urgency, sent at the speed of the link.
// The callers' credit limits its size. The agent owns it. Never blocks.
#pragma once

#include "base/bytes.h"
#include "launcher/agent/link/launcher_link.h"
#include "launcher/protocol/protocol.h"
#include "net/frame.h"

namespace hvd::launcher {

class Outbox {
 public:
  // `link` outlives the outbox.
  explicit Outbox(LauncherLink& link) : link_(link) {}

  // Sets the header of all later frames.
  void address(uint64_t job, uint32_t generation, uint32_t host);
  void put(const Message& message, net::Urgency urgency = net::Urgency::kControl);
  void put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
           net::Urgency urgency);
  // Passes as many bytes to the link as it accepts now. The agent calls this after each turn of the loop.
  void flush();
  bool is_empty() const { return unsent_.size() == sent_ && writer_.empty(); }
  // Drops all queued frames and all later ones.
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
