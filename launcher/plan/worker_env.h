// Builds the environment of the ranks: the launcher's variables that go to a host, and the variables
// that the launcher sets for a slot, which override all others. HostJobs calls it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/exec_strings.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// `inherited` without what the launcher itself sets for a slot (it may be a rank of another job)
// and without other launchers' identities; for a remote host also without what belongs to the
// launcher's user, terminal and machine.
Environment host_environment(const Environment& inherited, bool is_local);

// Whether the launcher sets this variable for each rank, whatever the user gives. `torch`: also the variables of
// torchrun.
bool is_set_by_launcher(std::string_view name, bool torch);

// The identity variables of a slot.
Environment slot_environment(const SlotPlan& plan, const Slot& slot);

// The place of a rank in an allocation of Slurm, as a task of a step of this job's ranks would find it: PyTorch Lightning
// and JAX read it. SLURM_STEP_NUM_TASKS and SLURM_STEP_ID are missing, by which a launcher or hvd.init() knows srun,
// SLURM_TASKS_PER_NODE, which describes the allocation (MPICH's mpiexec in a rank crashes where it has fewer nodes than
// SLURM_NODELIST), and SLURM_NTASKS_PER_NODE where hosts have unequal numbers.
Environment slurm_environment(const SlotPlan& plan, const Slot& slot);
// Removes the variables of torchrun, by which libraries start torch.distributed by themselves.
void remove_torch_variables(Environment& environment);

struct JobEnvironment {
  uint64_t job = 0;
  uint32_t generation = 0;
  std::string secret;  // in hexadecimal digits
  double start_timeout = 30;
};
// The variables that all ranks of a job share.
Environment job_environment(const JobEnvironment& job);

// The variables of the flags that were given, which the ranks read.
Environment flag_environment(const LaunchSettings& settings);

std::string job_name(uint64_t job);  // 16 hexadecimal digits

}  // namespace hvd::launcher
