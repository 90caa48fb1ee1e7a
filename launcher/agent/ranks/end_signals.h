// Sends signals to the processes of ranks that must end. SIGTERM first goes only to the processes that end_targets()
// selects. The other processes of a rank get it when the rank has ended. If end_targets() selects none, all get it at
// once. Other signals go to all processes. Class Ranks owns this object. One thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/host/process_tree.h"

namespace hvd::launcher {

struct EndCandidate {
  pid_t pid = 0;
  pid_t parent = 0;
  std::string command{};         // the process's arguments, each ended by a zero byte
  std::string program{};         // path of the executable file; may be empty
  bool handles_sigterm = false;  // the process has a SIGTERM handler
  bool has_joined = false;       // the process has called hvd.init()
};

// Chooses the processes of a rank that get SIGTERM at its end: the process that saves, without the shells above it and
// the workers below it. Pure.
// `processes` are a rank's first process, then all its descendants. Returns the topmost processes that have called
// hvd.init(). Without such processes, returns the topmost processes that handle SIGTERM, except: forks with the same
// command as their parent, children of Python's multiprocessing, and their descendants (workers of a DataLoader handle
// SIGTERM even if their parent does not); shells, which run a trap only after the command in the foreground has ended;
// and `timeout`, which sends the signal to its whole process group. If the result is empty, all processes get the
// signal.
std::vector<pid_t> end_targets(const std::vector<EndCandidate>& processes);

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
