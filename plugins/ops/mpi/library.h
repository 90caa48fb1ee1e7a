// MPI for the tensor operations of one runtime. Owns the user-defined types and operations, the buffers, and the thread
// that creates communicators. Lives on the progress thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "horovod/types.h"
#include "mpi/api.h"
#include "mpi/job.h"
#include "ops/common/batch_memory.h"

namespace hvd::ops::mpi {

using hvd::mpi::MpiApi;
using hvd::mpi::MpiComm;

// MPI's handles of element types and reductions. Registers user-defined types and operations that MPI lacks:
// float16 and bfloat16, and minima and maxima of float32 and float64 whose result is NaN if an input is NaN.
class Reductions {
 public:
  // Call after MPI_Init.
  static Result<Reductions> make(const MpiApi& api);
  // Frees the user-defined types and operations. Call after the last use and before MPI_Finalize.
  void give_back(const MpiApi& api);

  MPI_Datatype type(int32_t dtype) const { return types_[dtype]; }
  MPI_Op operation(int32_t dtype, int32_t reduce_op) const;

 private:
  MPI_Datatype types_[13]{};
  MPI_Op plain_[6]{};  // by hvd_reduce_op
  // The user-defined operations, by type and hvd_reduce_op.
  MPI_Op own_[13][6]{};
};

class CommunicatorThread;

class World {
 public:
  // Initialises MPI. Every rank of the job must call open(). If any rank fails, all ranks return an error.
  static Result<std::unique_ptr<World>> open(const hvd_plugin_host& host,
                                             const hvd_plugin_config& config);
  ~World();

  const MpiApi& api() const { return job_.api; }
  BufferPool& buffers() { return buffers_; }
  const Reductions& reductions() const { return *reductions_; }
  std::shared_ptr<MpiComm> everyone() const { return everyone_; }
  // Returns whether MPI allows calls from several threads on all ranks. Process sets other than the set of all ranks
  // need this: a separate thread creates their communicators, because the call waits for all members.
  bool has_threads() const { return job_.has_threads(); }
  // Creates a communicator. All members must call make() in the same order. `members`: ascending ranks of the job.
  std::shared_ptr<MpiComm> make(const std::vector<int32_t>& members);
  // Frees a communicator that no member uses any longer. All members must call give_back().
  void give_back(std::shared_ptr<MpiComm> communicator);
  // Records that the job has failed: later calls free nothing in MPI, since freeing waits for other ranks.
  void fail();

  std::string describe(int code) const { return hvd::mpi::describe(api(), code); }

 private:
  explicit World(hvd::mpi::MpiJob job) : job_(std::move(job)) {}

  const hvd::mpi::MpiJob job_;
  BufferPool buffers_;
  std::optional<Reductions> reductions_;
  std::shared_ptr<MpiComm> everyone_;
  std::shared_ptr<CommunicatorThread> thread_;  // null before the first set
  bool failed_ = false;
};

}  // namespace hvd::ops::mpi
