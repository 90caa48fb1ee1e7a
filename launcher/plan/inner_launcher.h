// Recognises another launcher in the ranks' command: torchrun, accelerate, deepspeed, horovodrun, or a launcher of MPI
// or Slurm. Each rank would start this launcher, and each launcher would start its own job. Pure, except for reading
// accelerate's default file. `environment`: the ranks' environment. `hindrance`: the flags of this job that prevent
// PET_NNODES and similar variables from reaching torchrun; may be empty.
#pragma once

#include <string>
#include <vector>

#include "base/process/spawn.h"
#include "base/status.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

inline constexpr char kByMpi[] = "--mpi";
inline constexpr char kElastic[] = "--min-np and --host-discovery-script";

// Refuses a command that would train in several worlds, although the user most likely wants one: several ranks each
// start a launcher of two or more processes, and neither its flags nor the environment name further hosts. Accepts one
// torchrun per host if PET_NNODES and similar variables can connect them. The error has the right command.
Status check_inner_launcher(const std::vector<std::string>& command, const Environment& environment,
                            const SlotPlan& plan, const std::string& hindrance = {});

// Returns whether several hosts each run one torchrun that PET_NNODES and similar variables connect to the others.
bool joins_torchruns(const std::vector<std::string>& command, const Environment& environment,
                     const SlotPlan& plan);

// Returns a warning if each of several ranks runs mpirun, mpiexec or srun. Also warns if torchruns of one process run
// on several hosts without a connection. Otherwise returns an empty text.
std::string describe_inner_launcher(const std::vector<std::string>& command,
                                    const Environment& environment, const SlotPlan& plan,
                                    const std::string& hindrance = {});

}  // namespace hvd::launcher
