// Recognises another launcher in the ranks' command: torchrun, accelerate, deepspeed, horovodrun,
// or a launcher of MPI or Slurm. Each rank would start one, and each of them its own job. Pure,
// except for reading accelerate's default file. `environment`: of the ranks. `hindrance`: the flags
// of this job that prevent PET_NNODES and the like from reaching torchrun; may be empty.
#pragma once

#include <string>
#include <vector>

#include "base/process/exec_strings.h"
#include "base/status.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

inline constexpr char kByMpi[] = "--mpi";
inline constexpr char kElastic[] = "--min-np and --host-discovery-script";

// Refuses a command that would train in several worlds, though the user most likely wants one: several ranks
// start a launcher of two or more processes each, and neither its flags nor the environment name more hosts.
// Accepts one torchrun per host if PET_NNODES and the like can connect them. The error has the right command.
Status check_inner_launcher(const std::vector<std::string>& command, const Environment& environment,
                            const SlotPlan& plan, const std::string& hindrance = {});

// Returns whether each of several hosts runs one torchrun, and PET_NNODES and the like connect them to one world.
bool joins_torchruns(const std::vector<std::string>& command, const Environment& environment,
                     const SlotPlan& plan);

// A sentence about mpirun, mpiexec or srun in each of several ranks, or about unconnected torchruns
// of one process on several hosts; else empty.
std::string describe_inner_launcher(const std::vector<std::string>& command,
                                    const Environment& environment, const SlotPlan& plan,
                                    const std::string& hindrance = {});

}  // namespace hvd::launcher
