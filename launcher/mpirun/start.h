// --mpi and --jsrun: starts the ranks by mpirun or jsrun. The launcher's main calls it.
#pragma once

#include "launcher/cli/options.h"
#include "launcher/plan/worker_env.h"

namespace hvd::launcher {

// The names of the variables that ranks on other hosts get of this environment, sorted: none that is
// for one machine only, or holds a secret of a job.
std::vector<std::string> exported_names(const Environment& environment);

bool is_started_by_mpi(const Options& options);

// Becomes mpirun: returns only an exit code of jsrun's, of --dry-run, or of what went wrong.
int run_by_mpi(const Options& options);

}  // namespace hvd::launcher
