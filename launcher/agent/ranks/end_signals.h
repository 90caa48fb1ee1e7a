// Signals the processes of ranks that must end: SIGTERM goes to the process that saves (end_targets.h). A skipped
// process gets SIGTERM later, once none of its ancestors is a rank. Other signals, and SIGTERM if no process was
// chosen, go to all processes. class Ranks owns this object. One thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <vector>

#include "launcher/agent/host/process_tree.h"

namespace hvd::launcher {

class EndSignals {
 public:
  // Call when the process has called hvd.init().
  void on_joined(pid_t pid);
  // Signals all descendants of this process. `ranks`: the first processes of the running ranks.
  void end_all(const std::vector<pid_t>& ranks, int signal);
  // Signals one rank, whose first process leads its process group.
  void end_one(pid_t rank, int signal);
  // Call after processes were reaped. `ranks`: the first processes of the ranks that still run.
  void on_reaped(const std::vector<pid_t>& ranks);

 private:
  struct LeftOut {
    ProcessEntry process;
    int signal;
  };

  std::set<pid_t> choose(pid_t rank, int signal, const std::vector<ProcessEntry>& all);

  std::map<pid_t, int64_t> joined_;  // pid -> start time
  std::vector<LeftOut> left_out_;
};

}  // namespace hvd::launcher
