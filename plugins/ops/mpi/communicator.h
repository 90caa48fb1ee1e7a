// A process set's communicator in MPI. A thread creates and frees the communicators, because these
// calls wait for all members. Batches start on the progress thread. Class Backend owns the
// MpiCommunicators, and World owns the thread.
#pragma once

#include <memory>
#include <vector>

#include "ops/common/library_thread.h"
#include "ops/mpi/library.h"

namespace hvd::ops::mpi {

class CommunicatorThread : public LibraryThread {
 public:
  CommunicatorThread(const MpiApi& api, std::vector<int> world_ranks, int32_t self)
      : LibraryThread("hvd-mpi", "MPI", nullptr),
        api_(api),
        world_ranks_(std::move(world_ranks)),
        self_(self) {}
  // Creates a communicator. All members must call make() in the same order. `members`: ascending ranks of the job.
  std::shared_ptr<MpiComm> make(const std::vector<int32_t>& members);
  void free(std::shared_ptr<MpiComm> communicator);

 private:
  const MpiApi api_;  // a copy: a thread that hangs in MPI may outlive the backend
  const std::vector<int> world_ranks_;
  const int32_t self_;
};

class MpiCommunicator : public BackendCommunicator {
 public:
  MpiCommunicator(World& world, std::shared_ptr<MpiComm> communicator)
      : world_(world), communicator_(std::move(communicator)) {}
  ~MpiCommunicator() override { world_.give_back(communicator_); }
  Result<bool> is_ready() override;
  Result<std::shared_ptr<RunningBatch>> start(const hvd_batch& batch) override;

 private:
  World& world_;
  const std::shared_ptr<MpiComm> communicator_;
};

}  // namespace hvd::ops::mpi
