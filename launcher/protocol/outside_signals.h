// Decides whether a signal from outside the job must be forwarded to the ranks. A scheduler may signal every process of
// the host, including the ranks, or only the launcher, the guardian or the agent. The agent owns this object and passes
// the time. Pure.
#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "base/clock.h"

namespace hvd::launcher {

// The launcher and the processes of a host get the same signal at slightly different times, at most this far apart.
constexpr std::chrono::milliseconds kSameSignalFor{250};
// On a busy host, the guardian and the agent may get the same signal this far apart.
constexpr std::chrono::milliseconds kLoneSignalFor{1000};

struct OutsideSignal {
  int number = 0;
  bool is_launchers = false;  // the launcher got the signal; an agent may have got it too
  // The guardian and the agent both got the signal. Since their sessions differ, the sender has signalled every process
  // of the host, including the ranks.
  bool has_reached_ranks = false;
};

class OutsideSignals {
 public:
  enum class Target { kLauncher, kGuardian, kAgent };

  void add(int number, Target target, Clock::time_point now);
  // Returns each signal once: when guardian and agent have both got it, or when its waiting time is over.
  std::vector<OutsideSignal> take(Clock::time_point now);
  // Returns the next time at which to call take().
  Deadline deadline() const;

 private:
  struct Arrival {
    bool by_target[3] = {};
    bool is_taken = false;  // stays in `arrivals_` for targets that get the signal late
    Clock::time_point due;
  };
  std::map<int, Arrival> arrivals_;  // by signal number
};

}  // namespace hvd::launcher
