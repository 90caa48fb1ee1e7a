// Tests in parallel which addresses of another host this host can reach. A nonce proves that the reply comes from that
// host's agent, and not from another host with the same address. Agent and PartClient own one object each. Lives on the
// agent's loop.
#pragma once

#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/fork_guard.h"
#include "launcher/protocol/protocol.h"
#include "net/event_loop.h"

namespace hvd::launcher {

class ReachabilityTest {
 public:
  explicit ReachabilityTest(net::EventLoop& loop) : loop_(loop) {}
  ~ReachabilityTest() { end(); }

  // Calls `done` once, from begin() or on the loop.
  void begin(const MasterCandidates& candidates, std::function<void(ReachabilityTested)> done);
  Deadline deadline() const { return done_ ? deadline_ : Deadline::never(); }
  void on_deadline() { conclude(); }

 private:
  struct Attempt {
    size_t index;  // index of the address among the candidates
    GuardedFd socket;
    bool is_connected = false;
    size_t received = 0;
    bool is_over = false;
    bool is_proven = false;
    std::string interface;
  };

  void dial(Attempt& attempt, const std::string& address, uint16_t port);
  void on_ready(Attempt& attempt);
  void finish(Attempt& attempt, bool is_proven);
  void consider();
  void conclude();
  void end();

  net::EventLoop& loop_;
  MasterCandidates candidates_;
  std::vector<Attempt> attempts_;
  std::function<void(ReachabilityTested)> done_;
  Deadline deadline_ = Deadline::never();
  bool has_one_ = false;
};

}  // namespace hvd::launcher
