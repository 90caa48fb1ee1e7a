// Starts the processes of ranks, each in its own process group, with pipes for its output. The kernel kills them when
// the agent dies. They inherit no other descriptor of the agent. One thread.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/agent/binding/host_share.h"
#include "launcher/agent/ranks/process_limits.h"
#include "launcher/agent/ranks/side_by_side.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {

struct RankCommand {
  std::string path;                    // path of the file to execute
  std::vector<std::string> arguments;  // argv, including argv[0]
  std::string working_directory;
  Environment environment;
  rlimit descriptor_limit{};
  bool has_input = false;  // false: the rank's standard input is at end of file
  ProcessLimits limits{};  // replace the agent's limits
  RankShare share{};       // its CPUs; its variables are in `environment`
};

struct RankProcess {
  pid_t pid = -1;
  UniqueFd output[2];  // read ends of standard output and standard error, non-blocking
  UniqueFd input;      // write end of standard input, non-blocking; closed if the rank has no input
};

// Starts all ranks at once. Blocks until each rank has executed its program or failed. A failed rank leaves no process
// behind, and its error is one sentence. If the system cannot create a process, later ranks are not started. If a rank
// has the variable SLURM_TASK_PID, the value becomes the pid of the rank's process.
std::vector<Result<RankProcess>> start_ranks(std::span<const RankCommand> commands,
                                             SideBySide& threads);
Result<RankProcess> start_rank(const RankCommand& command);

}  // namespace hvd::launcher
