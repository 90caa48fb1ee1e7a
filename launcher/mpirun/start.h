// --mpi and --jsrun: starts the ranks by mpirun or jsrun.
#pragma once

#include "launcher/plan/launch_settings.h"
#include "launcher/plan/worker_env.h"

namespace hvd::launcher {

// Returns the sorted names of the variables that ranks on other hosts get. Omits variables for one machine, and secrets
// of a job.
std::vector<std::string> exported_names(const Environment& environment);

bool is_started_by_mpi(const Options& options);

// Replaces this process by mpirun. Returns an exit code only for jsrun, --dry-run or an error.
int run_by_mpi(const Options& options);

}  // namespace hvd::launcher
