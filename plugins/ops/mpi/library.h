// MPI as the tensor operations of one runtime use it: what it was taught, and a communicator for each
// process set.
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

using hvd::mpi::Communicator;

class CommunicatorThread;

class World {
 public:
  // Every rank of the job calls it. What one finds wrong, each reports.
  static Result<std::unique_ptr<World>> open(const hvd_plugin_host& host,
                                             const hvd_plugin_config& config);
  ~World();

  const Api& api() const { return job_.api; }
  BufferPool& buffers() { return buffers_; }
  const Reductions& reductions() const { return *reductions_; }
  std::shared_ptr<Communicator> everyone() const { return everyone_; }
  // Making one waits for all its members, so a thread does it: MPI has to allow that, on all ranks.
  bool has_threads() const { return job_.has_threads(); }
  // In the same order on all members. members: ascending ranks of the job.
  std::shared_ptr<Communicator> make(const std::vector<int32_t>& members);
  // All members give it back, none uses it any more.
  void give_back(std::shared_ptr<Communicator> communicator);
  // From here on nothing is ended in good order.
  void fail();

  std::string describe(int code) const { return hvd::mpi::describe(api(), code); }

 private:
  explicit World(hvd::mpi::MpiJob job) : job_(std::move(job)) {}

  const hvd::mpi::MpiJob job_;
  BufferPool buffers_;
  std::optional<Reductions> reductions_;
  std::shared_ptr<Communicator> everyone_;
  std::shared_ptr<CommunicatorThread> thread_;  // none before the first set
  bool failed_ = false;
};

}  // namespace hvd::ops::mpi
