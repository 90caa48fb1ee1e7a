// Describes the activity of a rank's processes from /proc: state and kernel function of the busiest process, and the
// CPU time of all, as a share of a core. Keeps the CPU times of its last call. Class Ranks owns this object. Stops no
// process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/agent/host/process_tree.h"

namespace hvd::launcher {

class ProcessActivity {
 public:
  // Describes the activity of a process and its descendants since the last call, or since their start: "running
  // (python3 train.py), 98 % of a core". Empty if all of them have ended. `all`: the processes of the job on this host.
  std::string describe(pid_t pid, const std::vector<ProcessEntry>& all);

 private:
  struct Look {
    uint64_t start =
        0;  // start of the process, in ticks since boot, because a new process may reuse the pid
    uint64_t ticks = 0;  // CPU time, in ticks
    Clock::time_point when{};
  };
  std::map<pid_t, Look> looks_;
};

}  // namespace hvd::launcher
