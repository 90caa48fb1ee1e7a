// Decides whether a signal from outside the job must be forwarded to the ranks. A scheduler may
// signal every process of the host, including the ranks, or only the launcher, the watchdog or the
// agent. The agent owns it and passes the time. Pure.
#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "base/clock.h"

namespace hvd::launcher {

// The processes of a host, and the launcher, do not get such a signal at exactly the same time.
constexpr std::chrono::milliseconds kSameSignalFor{250};
// On a busy host, the watchdog or the agent may be this much later than the other.
constexpr std::chrono::milliseconds kLoneSignalFor{1000};

struct OutsideSignal {
  int number = 0;
  bool is_launchers = false;       // the launcher got it too, or only the launcher
  bool has_reached_ranks = false;  // watchdog and agent, in two sessions, both got it
};

class OutsideSignals {
 public:
  enum class Target { kLauncher, kGuardian, kAgent };

  // Records that the target got this signal.
  void add(int number, Target target, Clock::time_point now);
  // Returns each signal once: when watchdog and agent have both reported it, or when its waiting time is over.
  std::vector<OutsideSignal> take(Clock::time_point now);
  // The next time at which to call take().
  Deadline deadline() const;

 private:
  struct Arrival {
    bool by_target[3] = {};
    bool is_taken = false;  // kept for targets that get it late
    Clock::time_point due;
  };
  std::map<int, Arrival> arrivals_;  // by number
};

}  // namespace hvd::launcher
