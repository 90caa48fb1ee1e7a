// Decides whether a signal from outside the job must be forwarded to the ranks. A scheduler may signal
// every process of the host, so that the ranks have it already, or only the launcher, the guardian or
// the agent. The agent owns it and passes the time. Pure.
#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "base/clock.h"

namespace hvd::launcher {

// The processes of a host, and the launcher with them, do not get such a signal at one moment.
constexpr std::chrono::milliseconds kSameSignalFor{250};
// Guardian or agent of a busy host may be this much later than the other one.
constexpr std::chrono::milliseconds kLoneSignalFor{1000};

struct OutsideSignal {
  int number = 0;
  bool is_launchers = false;       // the launcher got it too, or alone
  bool has_reached_ranks = false;  // guardian and agent, of two sessions, both got it: all did
};

class OutsideSignals {
 public:
  enum class Target { kLauncher, kGuardian, kAgent };

  // The target got this signal.
  void add(int number, Target target, Clock::time_point now);
  // Returns each signal once: when guardian and agent have both reported it, or when its waiting time is over.
  std::vector<OutsideSignal> take(Clock::time_point now);
  // When to take again.
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
