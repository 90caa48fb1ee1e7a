// Gets the files of an environment from the agent of another host (PartServer). Stops if that host is unreachable, is
// silent for some seconds, or sends data that the key does not authenticate. The caller compares each file with the
// file's hash. Lives on the agent's loop.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/fork_guard.h"
#include "launcher/agent/preflight/reachability.h"
#include "launcher/protocol/part_stream.h"
#include "launcher/protocol/protocol.h"
#include "net/event_loop.h"

namespace hvd::launcher {

class PartClient {
 public:
  struct Events {
    std::function<void(const StagePart&)> on_part;
    // Called when the host sends no more parts, for this reason. This is the last event.
    std::function<void(const std::string& why)> on_failure;
  };

  PartClient(net::EventLoop& loop, Events events)
      : loop_(loop), events_(std::move(events)), reachability_(loop) {}
  ~PartClient() { close(); }
  PartClient(const PartClient&) = delete;

  void begin(const EnvironmentSource& source, const Digest& key);
  void close();
  // Call on_deadline() when this deadline has passed.
  Deadline deadline() const;
  void on_deadline();

 private:
  void connect(const Reached& reached);
  void on_ready();
  void read_challenge();
  void read_records();
  void fail(const std::string& why);

  net::EventLoop& loop_;
  const Events events_;
  ReachabilityTest reachability_;
  EnvironmentSource source_;
  Digest key_{};
  bool is_running_ = false;
  GuardedFd socket_;
  bool is_connected_ = false;
  std::array<std::byte, kChallengeSize> challenge_{};
  size_t challenged_ = 0;
  std::optional<PartOpener> opener_;
  Deadline silent_at_ = Deadline::never();
};

}  // namespace hvd::launcher
