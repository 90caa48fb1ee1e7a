// MPI for the tensor operations of one runtime. Owns the user-defined types and operations, the
// buffers, and the thread that creates communicators. The backend's plugin owns it; batches use it on
// the progress thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mpi/communicator.h"
#include "mpi/job.h"
#include "ops/common/buffer_pool.h"
#include "ops/mpi/reductions.h"

namespace hvd::ops::mpi {

using hvd::mpi::MpiComm;

class CommunicatorThread;

class World {
 public:
  // Every rank of the job calls it. All ranks return the same error when one fails.
  static Result<std::unique_ptr<World>> open(const hvd_plugin_host& host,
                                             const hvd_plugin_config& config);
  ~World();

  const MpiApi& api() const { return job_.api; }
  BufferPool& buffers() { return buffers_; }
  const Reductions& reductions() const { return *reductions_; }
  std::shared_ptr<MpiComm> everyone() const { return everyone_; }
  // Whether MPI allows calls from several threads on all ranks. A thread creates each communicator,
  // because the call waits for all members.
  bool has_threads() const { return job_.has_threads(); }
  // All members call it in the same order. members: ascending ranks of the job.
  std::shared_ptr<MpiComm> make(const std::vector<int32_t>& members);
  // Frees a communicator that no member uses. All members call it.
  void give_back(std::shared_ptr<MpiComm> communicator);
  // The job has failed: later calls free nothing in MPI, since that waits for other ranks.
  void fail();

  std::string describe(int code) const { return hvd::mpi::describe(api(), code); }

 private:
  explicit World(hvd::mpi::MpiJob job) : job_(std::move(job)) {}

  const hvd::mpi::MpiJob job_;
  BufferPool buffers_;
  std::optional<Reductions> reductions_;
  std::shared_ptr<MpiComm> everyone_;
  std::shared_ptr<CommunicatorThread> thread_;  // none before the first set
  bool failed_ = false;
};

}  // namespace hvd::ops::mpi
