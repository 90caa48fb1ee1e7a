// --mpi and --jsrun: starts the ranks by mpirun or jsrun. The launcher's main calls this code.
#pragma once

#include "launcher/plan/launch_settings.h"
#include "launcher/plan/worker_env.h"

namespace hvd::launcher {

// Returns the sorted names of the variables that ranks on other hosts get: without variables for one machine, and
// without secrets of a job.
std::vector<std::string> exported_names(const Environment& environment);

bool is_started_by_mpi(const Options& options);

// Executes mpirun. Returns only for jsrun, --dry-run or an error, with the exit code.
int run_by_mpi(const Options& options);

}  // namespace hvd::launcher
