// Tries from this host the addresses at which rank 0's host offers to be met, all at once, and
// says which of them lead there: not to a network that is not there, nor to another host of the
// same address. Lives on the agent's loop.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/fork_guard.h"
#include "launcher/agent/loop/poll_loop.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

class Visit {
 public:
  explicit Visit(PollLoop& loop) : loop_(loop) {}
  ~Visit() { end(); }

  // `done` is called once, from begin() or on the loop.
  void begin(const MeetingOffer& offer, std::function<void(Visited)> done);
  Deadline deadline() const { return done_ ? deadline_ : Deadline::never(); }
  void on_deadline() { conclude(); }

 private:
  struct Attempt {
    size_t index;  // of the address in the offer
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

  PollLoop& loop_;
  MeetingOffer offer_;
  std::vector<Attempt> attempts_;
  std::function<void(Visited)> done_;
  Deadline deadline_ = Deadline::never();
  bool has_one_ = false;
};

}  // namespace hvd::launcher
