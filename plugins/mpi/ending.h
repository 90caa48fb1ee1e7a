// Ends MPI in a process: calls MPI_Finalize, and ends the process if that call hangs. job.cpp
// calls end_mpi when the process exits, on the exiting thread.
#pragma once

#include <chrono>

namespace hvd::mpi {

// Calls `finalize` (MPI_Finalize) in a process that exits with `status`. `may_never_end`: MPI is MPICH,
// and the ranks are on several hosts. The process then exits without MPI_Finalize if the call has
// returned neither within `usual` nor within 100 ms after all ranks of the job have called MPI_Finalize.
void end_mpi(int (*finalize)(), bool may_never_end, int status,
             std::chrono::milliseconds usual = std::chrono::seconds(20));

}  // namespace hvd::mpi
