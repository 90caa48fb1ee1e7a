// A communicator of some of a job's ranks.
#pragma once

#include <atomic>
#include <vector>

#include "mpi/api.h"

namespace hvd::mpi {

// It may still be in the making, by another thread.
struct MpiComm {
  MPI_Comm comm{};
  int index = 0, size = 0;
  std::atomic<int> state{0};  // 0: in the making, 1: there, -1: failed
};

// Waits for the other members. members: ascending ranks of the job; world_ranks: what MPI calls each
// rank of the job.
void make_communicator(const MpiApi& api, const std::vector<int>& world_ranks, int32_t self,
                       const std::vector<int32_t>& members, MpiComm* to);

}  // namespace hvd::mpi
