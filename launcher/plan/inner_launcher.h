// Recognises another launcher in the words of the ranks' command: torchrun, accelerate, deepspeed, horovodrun, or one of
// MPI or Slurm. Each rank would start one, and each of these a job of its own. Pure, but for accelerate's default file.
#pragma once

#include <string>
#include <vector>

#include "base/process/exec_strings.h"
#include "base/status.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// Refuses a command that trains in several worlds where the user most likely means one: several ranks start a launcher of
// two or more processes each, and neither its flags nor `environment`, which the ranks get, name more hosts. One torchrun
// on each host passes. The error says what to type.
Status check_inner_launcher(const std::vector<std::string>& command, const Environment& environment,
                            const SlotPlan& plan);

// Whether the command is one torchrun on each of several hosts that become one world by PET_NNODES and the like.
bool joins_torchruns(const std::vector<std::string>& command, const Environment& environment,
                     const SlotPlan& plan);

// A sentence about mpirun, mpiexec or srun in each of several ranks, or empty.
std::string describe_inner_launcher(const std::vector<std::string>& command, const SlotPlan& plan);

}  // namespace hvd::launcher
