// Memory shared by the agent and its guardian: the agent stores the time until which it will run again, from which the
// guardian detects that the agent hangs or is stopped. The agent's main creates it before the fork. Needs no locks.
#pragma once

#include <atomic>
#include <cstdint>

namespace hvd::launcher {

class Watchdog {
 public:
  // Without memory, an agent never counts as hung.
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;

  // The agent calls this when it runs, and again within this number of seconds; 0: without a limit.
  void expect_within(double seconds);

  // For the guardian, which waits in turns of this length.
  double turn_seconds() const;
  // A turn of the guardian has ended. Returns whether the agent is hung. Counts turns instead of time, so that
  // nothing is counted while the guardian itself is stopped.
  bool is_hung_after_turn();

 private:
  struct Shared {
    std::atomic<uint64_t> calls{0};
    std::atomic<double> seconds{0};
  };
  Shared* shared_ = nullptr;
  // These belong to the guardian.
  uint64_t seen_calls_ = 0;
  double waited_seconds_ = 0;
};

}  // namespace hvd::launcher
