// The frames of one link: parses incoming frames, and queues outgoing frames by urgency. Owns the duplex
// stream, the parser and the queue. Does not decode messages. AgentLink owns and calls it. Lives on the
// launcher's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "launcher/protocol/host_job.h"
#include "launcher/spawn/duplex.h"
#include "net/asio.h"
#include "net/frame.h"
#include "net/notification.h"

namespace hvd::launcher {

class FrameChannel {
 public:
  using OnBytes = std::function<void()>;
  using OnFrame = std::function<Status(const net::Frame&)>;

  FrameChannel(const net::asio::any_io_executor& executor, std::unique_ptr<Duplex> duplex)
      : duplex_(std::move(duplex)), outgoing_(executor) {}

  // From now on, frames carry the number of this job. `job` outlives this object.
  void address(const HostJob& job) { job_ = &job; }
  // Queues a frame. Does nothing on a closed channel.
  void put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
           net::Urgency urgency);
  // Writes the queued frames, until the channel is closed or a write fails.
  net::Task<void> write();
  // Reads frames. Each read calls on_bytes, then on_frame for each complete frame. Returns ok if the
  // channel was closed, else the read error or the error of on_frame.
  net::Task<Status> read(OnBytes on_bytes, OnFrame on_frame);
  // Lets the stream survive the loss of its connection. See Duplex.
  void survive(double seconds, double silence_seconds) {
    duplex_->survive(seconds, silence_seconds);
  }
  void on_silence(double seconds) { duplex_->on_silence(seconds); }
  // Closes the stream: the agent reads end of file.
  void close();
  // Duplex::last_words() in parentheses, to append to an error message; or empty.
  std::string last_words() const;

 private:
  std::unique_ptr<Duplex> duplex_;
  net::Notification outgoing_;
  net::FrameWriter writer_;
  net::FrameParser parser_;
  const HostJob* job_ = nullptr;  // null: frames carry no job number
  bool is_closed_ = false;
};

}  // namespace hvd::launcher
