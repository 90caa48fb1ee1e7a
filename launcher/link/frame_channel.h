// The frames of one link: parses what the agent sends, and queues by urgency what goes to it. Owns the
// duplex stream and both queues; never knows what a message means. Lives in an AgentLink, on the
// launcher's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/notification.h"
#include "launcher/spawn/duplex.h"
#include "net/asio.h"
#include "net/frame.h"

namespace hvd::launcher {

class FrameChannel {
 public:
  using OnBytes = std::function<void()>;
  using OnFrame = std::function<Status(const net::Frame&)>;

  FrameChannel(const net::asio::any_io_executor& executor, std::unique_ptr<Duplex> duplex)
      : duplex_(std::move(duplex)), outgoing_(executor) {}

  // From here on, frames carry the job. `job` outlives this.
  void address(const HostJob& job) { job_ = &job; }
  // Does nothing on a closed channel.
  void put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
           net::Urgency urgency);
  // Writes what was put, until the channel is closed or breaks.
  net::Task<void> write();
  // Hands over what arrives: a call of on_bytes, then one of on_frame for each whole frame. Fine when
  // the channel was closed; else why it broke, or the error of on_frame.
  net::Task<Status> read(OnBytes on_bytes, OnFrame on_frame);
  // The agent sees the end of the stream.
  void close();
  // The far side's last words, in parentheses, or nothing.
  std::string last_words() const;

 private:
  std::unique_ptr<Duplex> duplex_;
  Notification outgoing_;
  net::FrameWriter writer_;
  net::FrameParser parser_;
  const HostJob* job_ = nullptr;  // null: frames carry none
  bool is_closed_ = false;
};

}  // namespace hvd::launcher
