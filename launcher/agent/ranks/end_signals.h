// Sends signals to the processes of ranks that must end. SIGTERM first goes only to the processes that end_targets()
// selects. The other processes of a rank get it when the rank has ended. If end_targets() selects none, all get it at
// once. Other signals go to all processes. Class Ranks owns this object. One thread.
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
