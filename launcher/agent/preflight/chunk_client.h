// Gets the files of an environment from the agent of another host (ChunkServer), chunk by chunk. Gives up when that
// host cannot be reached, sends nothing for some seconds, or sends what the key does not authenticate. The caller
// compares each chunk with its hash. Lives on the agent's loop.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fork_guard.h"
#include "launcher/agent/preflight/reachability.h"
#include "launcher/protocol/chunk_stream.h"
#include "launcher/protocol/protocol.h"
#include "net/event_loop.h"

namespace hvd::launcher {

class ChunkClient {
 public:
  struct Events {
    // Returns false for a chunk that the caller cannot take yet: it comes again after resume().
    std::function<bool(const Chunk&)> on_chunk;
    // The host sends no more, for this reason. The last event.
    std::function<void(const std::string& why)> on_failure;
  };

  ChunkClient(net::EventLoop& loop, Events events)
      : loop_(loop), events_(std::move(events)), reachability_(loop) {}
  ~ChunkClient() { close(); }
  ChunkClient(const ChunkClient&) = delete;

  // Begins. `first`: the chunk to begin with.
  void begin(const EnvironmentSource& source, const Digest& key, uint64_t first);
  bool is_running() const { return is_running_; }
  void resume();
  void close();
  // Call on_deadline() when it has passed.
  Deadline deadline() const;
  void on_deadline();

 private:
  void connect(const Reached& reached);
  void on_ready();
  void read_challenge();
  void read_records();
  void deliver();
  void fail(const std::string& why);

  net::EventLoop& loop_;
  const Events events_;
  ReachabilityTest reachability_;
  EnvironmentSource source_;
  Digest key_{};
  uint64_t first_ = 0;
  bool is_running_ = false;
  GuardedFd socket_;
  bool is_connected_ = false;
  std::array<std::byte, kChallengeSize> challenge_{};
  size_t challenged_ = 0;
  std::optional<ChunkOpener> opener_;
  std::optional<Chunk> held_;  // until resume()
  Deadline silent_at_ = Deadline::never();
};

}  // namespace hvd::launcher
