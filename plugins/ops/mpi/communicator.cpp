#include "ops/mpi/communicator.h"

#include <utility>

#include "ops/mpi/batch.h"

namespace hvd::ops::mpi {

std::shared_ptr<MpiComm> CommunicatorThread::make(const std::vector<int32_t>& members) {
  auto made = std::make_shared<MpiComm>();
  call([this, made, members]() -> Status {
    hvd::mpi::make_communicator(api_, world_ranks_, self_, members, made.get());
    return {};
  });
  return made;
}

void CommunicatorThread::free(std::shared_ptr<MpiComm> communicator) {
  call([this, communicator = std::move(communicator)]() -> Status {
    if (communicator->state.load() == 1) api_.comm_free(&communicator->comm);
    return {};
  });
}

Result<bool> MpiCommunicator::is_ready() {
  const int state = communicator_->state.load();
  if (state < 0) return internal_error("MPI makes no communicator of a process set");
  return state == 1;
}

Result<std::shared_ptr<RunningBatch>> MpiCommunicator::start(const hvd_batch& batch) {
  auto running = std::make_shared<MpiBatch>(world_, *communicator_, batch);
  running->start();
  return std::shared_ptr<RunningBatch>(std::move(running));
}

}  // namespace hvd::ops::mpi
