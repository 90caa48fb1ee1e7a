// Makes an MPI communicator (MPI_Comm) of some of a job's ranks. The op plugin makes one for each process set, on its
// library thread; the controller makes one of all ranks.
#pragma once

#include <atomic>
#include <vector>

#include "mpi/api.h"

namespace hvd::mpi {

// One thread creates the communicator while other threads poll `state`. The owner frees `comm`.
struct MpiComm {
  MPI_Comm comm{};
  int index = 0, size = 0;
  std::atomic<int> state{0};  // 0: not complete, 1: complete, -1: failed
};

// Waits for the other members, which must all call this function. `members`: ascending ranks of the job.
// `world_ranks`: the number of each rank of the job in MPI_COMM_WORLD.
void make_communicator(const MpiApi& api, const std::vector<int>& world_ranks, int32_t self,
                       const std::vector<int32_t>& members, MpiComm* to);

}  // namespace hvd::mpi
