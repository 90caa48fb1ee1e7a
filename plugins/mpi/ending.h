// Ends MPI in a process: calls MPI_Finalize, and ends the process in another way when that call would
// never return.
#pragma once

#include <chrono>

namespace hvd::mpi {

// Calls `finalize`, for a process that exits with `status`. `may_never_end`: it is MPICH's, of ranks on
// several hosts; if it has not ended when all ranks of the job have come, the process leaves without it.
// Nothing of that for as long as it usually takes.
void end_mpi(int (*finalize)(), bool may_never_end, int status,
             std::chrono::milliseconds usual = std::chrono::seconds(20));

}  // namespace hvd::mpi
