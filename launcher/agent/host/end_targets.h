// Chooses the processes of a rank that get SIGTERM at the rank's end: the process that saves, but not the shells above
// it or the workers below it. Pure.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace hvd::launcher {

struct EndCandidate {
  pid_t pid = 0;
  pid_t parent = 0;
  std::string command{};         // its arguments, each ended by a zero byte
  std::string program{};         // path of the file that it executes; may be empty
  bool handles_sigterm = false;  // by a handler of its own
  bool has_joined = false;       // it has called hvd.init()
};

// `processes` are a rank's first process and all below it, the first one first. Returns the topmost processes that
// have called hvd.init(). Without any: the topmost ones that handle SIGTERM, where these do not count: forks that have
// the command of their parent, children of Python's multiprocessing, and what they start (workers of a DataLoader
// handle SIGTERM also where their parent does not); shells, which run a trap only when the command in the foreground
// has ended, and `timeout`, which passes the signal to its whole process group. Empty: all processes get the signal.
std::vector<pid_t> end_targets(const std::vector<EndCandidate>& processes);

}  // namespace hvd::launcher
