// Recognises another launcher in the words of the ranks' command: torchrun, accelerate, deepspeed, horovodrun, or one of
// MPI or Slurm. Each rank would start one, and each of these a job of its own. Pure, but for accelerate's default file.
// `environment`: what the ranks get. `hindrance`: the flags of this job by which torchruns do not get PET_NNODES and the
// like; empty: they get them.
#pragma once

#include <string>
#include <vector>

#include "base/process/exec_strings.h"
#include "base/status.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

inline constexpr char kByMpi[] = "--mpi";
inline constexpr char kElastic[] = "--min-np and --host-discovery-script";

// Refuses a command that trains in several worlds where the user most likely means one: several ranks start a launcher of
// two or more processes each, and neither its flags nor the environment name more hosts. One torchrun on each host passes
// if PET_NNODES and the like can connect them. The error says what to type.
Status check_inner_launcher(const std::vector<std::string>& command, const Environment& environment,
                            const SlotPlan& plan, const std::string& hindrance = {});

// Whether the command is one torchrun on each of several hosts that become one world by PET_NNODES and the like.
bool joins_torchruns(const std::vector<std::string>& command, const Environment& environment,
                     const SlotPlan& plan);

// A sentence about mpirun, mpiexec or srun in each of several ranks, or about torchruns of one process on several hosts
// that nothing connects; else empty.
std::string describe_inner_launcher(const std::vector<std::string>& command,
                                    const Environment& environment, const SlotPlan& plan,
                                    const std::string& hindrance = {});

}  // namespace hvd::launcher
