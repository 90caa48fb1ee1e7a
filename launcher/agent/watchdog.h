// Memory shared by the agent and its guardian: the agent stores the number of seconds within which it will run again.
// After that time, the guardian treats the agent as hung. The agent's main() creates this memory before the fork. Needs
// no locks.
#pragma once

#include <atomic>
#include <cstdint>

namespace hvd::launcher {

class Watchdog {
 public:
  // If the memory cannot be created, is_hung_after_turn() always returns false.
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;

  // The agent calls this whenever it runs, and must call it again within this number of seconds; 0: without a limit.
  void expect_within(double seconds);

  // Returns the length of one turn: the guardian waits in turns of this length.
  double turn_seconds() const;
  // Call after each turn of waiting. Returns whether the agent hangs. Counts turns instead of time, so that nothing is
  // counted while the guardian itself is stopped.
  bool is_hung_after_turn();

 private:
  struct Shared {
    std::atomic<uint64_t> calls{0};
    std::atomic<double> seconds{0};
  };
  Shared* shared_ = nullptr;
  // The guardian uses the members below.
  uint64_t seen_calls_ = 0;
  double waited_seconds_ = 0;
};

}  // namespace hvd::launcher
