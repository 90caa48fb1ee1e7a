// The ranks of a job in MPI. A process initialises MPI once, in the plugin or in the program (mpi4py). If the plugin
// has initialised MPI, it finalizes MPI at a normal end of the process. After a failure, MPI is not finalized, so that
// mpirun notices the failure.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "horovod/plugin.h"
#include "mpi/api.h"

namespace hvd::mpi {

// Calls `finalize` (MPI_Finalize) in a process that exits with `status`. `may_never_end`: MPI is MPICH,
// and the ranks are on several hosts. The process then exits without MPI_Finalize if the call has
// returned neither within `usual` nor within 100 ms after all ranks of the job have called MPI_Finalize.
void end_mpi(int (*finalize)(), bool may_never_end, int status,
             std::chrono::milliseconds usual = std::chrono::seconds(20));

struct MpiJob {
  MpiApi api;
  int32_t rank = 0;
  std::vector<int> world_ranks = {};  // the number of each rank of the job in MPI_COMM_WORLD
  // The machine of each rank: two ranks have equal texts if they share a kernel and a network.
  std::vector<std::string> machines = {};
  int threads = 0;  // the highest thread level that all ranks have
  std::string version = {};
  bool has_threads() const { return threads == MPI_THREAD_MULTIPLE; }
};

// Every rank of the job must call this function. If any rank has an error, all ranks return an error. `who` names the
// rendezvous, and `setting` is the variable that selected MPI. Both are equal on all ranks.
Result<MpiJob> join_job(const hvd_plugin_host& host, const hvd_plugin_config& config,
                        const std::string& who, const char* setting);

// Initialises MPI, unless it is already initialised in this process.
Status initialise(const MpiApi& api, const hvd_plugin_host& host);

// Records whether the job, or MPI_COMM_WORLD, has ranks on several machines. After true, false has no effect.
void note_machines(bool are_several);

// Abandons MPI: the process does not finalize MPI at its end.
void abandon_mpi();

// Returns whether this process has already finalized MPI.
bool is_over(const MpiApi& api);

std::string describe(const MpiApi& api, int code);

}  // namespace hvd::mpi
