// Chooses the processes of a rank that get SIGTERM at the rank's end: the process that saves, without the shells above
// it and the workers below it. Pure.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace hvd::launcher {

struct EndCandidate {
  pid_t pid = 0;
  pid_t parent = 0;
  std::string command{};         // the process's arguments, each ended by a zero byte
  std::string program{};         // path of the executable file; may be empty
  bool handles_sigterm = false;  // the process has a SIGTERM handler
  bool has_joined = false;       // the process has called hvd.init()
};

// `processes` are a rank's first process, then all its descendants. Returns the topmost processes that have called
// hvd.init(). Without such processes, returns the topmost processes that handle SIGTERM, except: forks with the same
// command as their parent, children of Python's multiprocessing, and their descendants (workers of a DataLoader handle
// SIGTERM even if their parent does not); shells, which run a trap only after the command in the foreground has ended;
// and `timeout`, which sends the signal to its whole process group. If the result is empty, all processes get the
// signal.
std::vector<pid_t> end_targets(const std::vector<EndCandidate>& processes);

}  // namespace hvd::launcher
