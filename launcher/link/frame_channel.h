// The frames of one link: parses incoming frames, and queues outgoing frames by urgency. Owns the duplex stream, the
// parser and the queue. Does not decode messages. AgentLink owns this object. Lives on the launcher's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/protocol/host_job.h"
#include "launcher/spawn/spawner.h"
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
  // See Duplex.
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

// Renews an agent's lease by pings, and detects a silent agent by unanswered pings. Owns the timer and the count. Calls
// the callbacks of AgentLink, which owns this object. Lives on the launcher's loop.
class LeasePings {
 public:
  struct Callbacks {
    std::function<void(uint64_t number)> send;
    // Called at each ping while an earlier ping is unanswered, with the time since the oldest of these.
    std::function<void(double seconds)> on_silence;
    // Called when bytes arrive while a ping is unanswered.
    std::function<void()> on_answer;
  };
  LeasePings(const net::asio::any_io_executor& executor, Callbacks callbacks)
      : timer_(executor), callbacks_(std::move(callbacks)) {}

  // Sends pings until stop(), often enough for a lease of `lease_seconds` (0: no lease). Returns an error if the agent
  // does not answer for `host_timeout_seconds`, measured by the number of pings.
  net::Task<Status> run(double host_timeout_seconds, double lease_seconds);
  void on_received();
  bool is_unanswered() const { return unanswered_ > 0; }
  // Returns the time since the oldest unanswered ping, as of the last ping.
  double silence_seconds() const { return silence_seconds_; }
  // Returns how late the last ping was, or the next ping already is, in seconds. A ping is late if this process was
  // stopped or blocked, or its machine slept.
  double standstill_seconds() const;
  // Delays the next ping until this time after the call.
  void hold_back(Clock::duration time);
  void stop();

 private:
  double late_seconds() const;

  net::asio::steady_timer timer_;
  const Callbacks callbacks_;
  uint64_t sent_ = 0;
  int unanswered_ = 0;
  double silence_seconds_ = 0;
  double next_seconds_ =
      0;  // time of the next ping, by CLOCK_BOOTTIME, which also runs while the machine sleeps
  double standstill_seconds_ = 0;  // how late the last ping was
  std::optional<Clock::duration> held_back_;
  bool is_stopped_ = false;
};

}  // namespace hvd::launcher
