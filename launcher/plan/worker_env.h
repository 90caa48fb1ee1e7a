// Builds the environment of the ranks: the launcher's variables for a host, and the variables that the launcher sets
// for a slot, which override all others. Pure, except for the random numbers of a new job.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/process/spawn.h"
#include "base/secrets/secret.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// The number of a job, and the secret of its ranks.
struct JobIdentity {
  uint64_t number = 0;
  Secret secret;
};

JobIdentity random_job();
// Returns the identity of a job whose hosts join with this token. The secret is derived from the token, the job's
// random number and the generation. Ranks never get the token, because hosts also join other jobs with it.
JobIdentity joined_job(const Secret& token, uint32_t generation);

// Returns `inherited` without the variables that the launcher sets for a slot: the launcher may itself be a rank of
// another job. Also removes other launchers' identities and, for a remote host, variables of the launcher's user,
// terminal and machine.
Environment host_environment(const Environment& inherited, bool is_local);

// Returns whether the launcher sets this variable for each rank, in place of the user's value.
// `torch`: includes torchrun's variables.
bool is_set_by_launcher(std::string_view name, bool torch);

// Returns the identity variables of a slot, in a job with `size` ranks.
Environment slot_environment(const Slot& slot, const std::string& host, int size);

// Returns the variables by which Slurm gives a step's task its place, with the place of this rank: PyTorch Lightning
// and JAX read them. Omits SLURM_STEP_NUM_TASKS and SLURM_STEP_ID: a launcher or hvd.init() would detect srun by them.
// Omits SLURM_TASKS_PER_NODE: MPICH's mpiexec in a rank crashes if it has fewer nodes than SLURM_NODELIST. Omits
// SLURM_NTASKS_PER_NODE if hosts have unequal numbers of ranks.
Environment slurm_environment(const SlotPlan& plan, const Slot& slot);
// Removes torchrun's variables, with which libraries start torch.distributed by themselves.
void remove_torch_variables(Environment& environment);

struct JobEnvironment {
  uint64_t job = 0;
  uint32_t generation = 0;
  std::string secret;  // in hexadecimal digits
  double start_timeout = 30;
};
// Returns the variables that are equal for all ranks of a job.
Environment job_environment(const JobEnvironment& job);

// Returns the variables of the flags that the user has set and the ranks read.
Environment flag_environment(const LaunchSettings& settings);

std::string job_name(uint64_t job);  // 16 hexadecimal digits

}  // namespace hvd::launcher
