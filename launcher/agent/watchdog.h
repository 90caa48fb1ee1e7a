// Memory that the agent and its guardian share: the agent stores the time within which it runs again, from which the
// guardian detects that the agent hangs or is stopped. The agent's main creates it before the fork. Needs no lock.
#pragma once

#include <atomic>
#include <cstdint>

namespace hvd::launcher {

class Watchdog {
 public:
  // If it gets no memory, no agent counts as hung.
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;

  // The agent runs, and calls this again within these seconds; 0: at any time.
  void expect_within(double seconds);

  // For the guardian, which waits in turns of this many seconds.
  double turn_seconds() const;
  // A turn of the guardian has ended. Returns whether the agent is hung. Counts turns and not time, so that
  // nothing is counted while the guardian itself is stopped.
  bool is_hung_after_turn();

 private:
  struct Shared {
    std::atomic<uint64_t> calls{0};
    std::atomic<double> seconds{0};
  };
  Shared* shared_ = nullptr;
  // The guardian's.
  uint64_t seen_calls_ = 0;
  double waited_seconds_ = 0;
};

}  // namespace hvd::launcher
