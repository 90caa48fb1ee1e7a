// Describes the activity of a rank's processes, as far as /proc shows it: state, kernel function and share of a core of
// the busiest process. Keeps the CPU times of its last call. The agent owns one; never stops a process.
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
  // "running (python3 train.py), 98 % of a core": of this process and those below it, since the last call, or
  // since their start. Empty when all have ended. `all`: the processes of the job on this host.
  std::string describe(pid_t pid, const std::vector<ProcessEntry>& all);

 private:
  struct Look {
    uint64_t start =
        0;  // of the process, in ticks since the boot: another process may have got the pid
    uint64_t ticks = 0;  // of CPU time
    Clock::time_point when{};
  };
  std::map<pid_t, Look> looks_;
};

}  // namespace hvd::launcher
