// The ranks of a job in MPI. MPI is initialised once in a process's life, by this code or by the
// program (mpi4py). The code that initialised it finalizes it at a normal end of the process. After a
// failure nobody finalizes it, so that mpirun notices the failure.
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
      machines;     // each rank's machine: equal where ranks share a kernel and a network
  int threads = 0;  // MPI_THREAD_MULTIPLE, or less, as all ranks have it
  std::string version;
  bool has_threads() const { return threads == MPI_THREAD_MULTIPLE; }
};

// Every rank of the job calls it. All report the fault of one. `who` names the rendezvous, `setting`
// is the variable that has chosen MPI: both alike on all ranks.
Result<MpiJob> join_job(const hvd_plugin_host& host, const hvd_plugin_config& config,
                        const std::string& who, const char* setting);

// Initialises MPI, where nobody in this process has.
Status initialise(const MpiApi& api, const hvd_plugin_host& host);

// Whether the job, or its MPI, has ranks on several machines; what was said once stays.
void note_machines(bool are_several);

// Abandons MPI: from here on nothing of it is ended in good order.
void abandon_mpi();

// Whether this process has ended MPI already.
bool is_over(const MpiApi& api);

std::string describe(const MpiApi& api, int code);

}  // namespace hvd::mpi
