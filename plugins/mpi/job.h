// The ranks of a job in MPI. MPI is initialised once in a process's life, by this code or by the
// program (mpi4py). The code that initialised it finalizes it at a normal end of the process. After
// a failure it is not finalized, so that mpirun notices the failure.
#pragma once

#include <string>
#include <vector>

#include "horovod/plugin.h"
#include "mpi/api.h"

namespace hvd::mpi {

struct MpiJob {
  MpiApi api;
  int32_t rank = 0;
  std::vector<int> world_ranks;  // the number of each rank of the job in MPI_COMM_WORLD
  std::vector<std::string>
      machines;     // each rank's machine: equal if ranks share a kernel and a network
  int threads = 0;  // MPI_THREAD_MULTIPLE, or a lower level that all ranks have
  std::string version;
  bool has_threads() const { return threads == MPI_THREAD_MULTIPLE; }
};

// Every rank of the job must call it. All report an error of one rank. `who` names the rendezvous,
// `setting` is the variable that selected MPI: both equal on all ranks.
Result<MpiJob> join_job(const hvd_plugin_host& host, const hvd_plugin_config& config,
                        const std::string& who, const char* setting);

// Initialises MPI, unless it is already initialised in this process.
Status initialise(const MpiApi& api, const hvd_plugin_host& host);

// Records whether the job, or its MPI, has ranks on several machines; true stays true.
void note_machines(bool are_several);

// Abandons MPI: it is not finalized at the end.
void abandon_mpi();

// Returns whether this process has already finalized MPI.
bool is_over(const MpiApi& api);

std::string describe(const MpiApi& api, int code);

}  // namespace hvd::mpi
