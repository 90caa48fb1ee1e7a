// The ranks of a job as MPI sees them: initialised once for the process, and a communicator for each
// process set. MPI is initialised by whoever comes first, this or the program (mpi4py); who did ends
// it when the process exits in good order. After a failure it is not ended, so that mpirun sees that
// the job is over.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "horovod/plugin.h"
#include "ops/buffer_pool.h"
#include "ops/mpi/reductions.h"

namespace hvd::ops::mpi {

// A process set's communicator, which may still be in the making.
struct Communicator {
  MPI_Comm comm{};
  int index = 0, size = 0;
  std::atomic<int> state{0};  // 0: in the making, 1: there, -1: failed
};

class World {
 public:
  // Every rank of the job calls it. What one finds wrong, each reports.
  static Result<std::unique_ptr<World>> open(const hvd_plugin_host& host,
                                             const hvd_plugin_config& config);
  ~World();

  const Api& api() const { return api_; }
  BufferPool& buffers() { return buffers_; }
  const Reductions& reductions() const { return *reductions_; }
  std::shared_ptr<Communicator> everyone() const { return everyone_; }
  // Making one waits for all its members, so a thread does it: MPI has to allow that, on all ranks.
  bool has_threads() const { return has_threads_; }
  // In the same order on all members. members: ascending ranks of the job.
  std::shared_ptr<Communicator> make(const std::vector<int32_t>& members);
  // All members give it back, none uses it any more.
  void give_back(std::shared_ptr<Communicator> communicator);
  // Nothing here is ended in good order any more.
  void fail();

  std::string describe(int code) const;

 private:
  class Maker;
  World(Api api, int32_t rank) : api_(std::move(api)), rank_(rank) {}
  Status initialise(const hvd_plugin_host& host);
  Status meet(const hvd_plugin_host& host, const hvd_plugin_config& config);

  const Api api_;
  const int32_t rank_;
  BufferPool buffers_;
  std::optional<Reductions> reductions_;
  std::vector<int> world_ranks_;  // of each rank of the job
  std::shared_ptr<Communicator> everyone_;
  std::shared_ptr<Maker> maker_;  // none before the first set
  bool has_threads_ = false;
  bool failed_ = false;
};

}  // namespace hvd::ops::mpi
