// One batch that runs through oneCCL. Owns the memory of the batch, because oneCCL may still write to it after the job
// has abandoned the batch. Functions may throw oneCCL's exceptions.
#pragma once

#include <memory>
#include <vector>

#include "horovod/plugin_op.h"
#include "ops/ccl/library.h"
#include "ops/common/batch_memory.h"
#include "ops/common/library_thread.h"

namespace hvd::ops::ccl {

// This rank's index among the members, and values that are equal on all members.
struct Members {
  int32_t index = 0, size = 1;
  abi::Communicator* communicator = nullptr;
};

// Returns whether oneCCL can run the batch. The result is equal on all members. oneCCL runs only batches in HVD_CPU
// memory, without floating-point minima and maxima. `has_halves`: the processors of all ranks can add float16 and
// bfloat16.
bool can_run(const hvd_batch& batch, bool has_halves);

class CclBatch : public QueuedBatch {
 public:
  CclBatch(const CclApi& api, BufferPool& buffers, std::shared_ptr<const Members> members,
           const hvd_batch& batch)
      : QueuedBatch(batch),
        api_(api),
        buffers_(buffers),
        owner_(std::move(members)),
        members_(*owner_) {}
  Status start() override;
  Result<bool> test() override;
  // Writes the outputs. Also releases memory of oneCCL and of the pool, on the thread that owns both.
  void finish() override;

 private:
  void write_outputs();
  Status reduce();
  Status reducescatter();
  Status allgather();
  Status broadcast();
  Status alltoall();
  std::byte* room(Buffer* buffer, size_t bytes);
  void add(abi::Event* event) { events_.emplace_back(event); }
  size_t width() const;
  const abi::Communicator& communicator() const { return *members_.communicator; }

  const CclApi& api_;
  BufferPool& buffers_;
  const std::shared_ptr<const Members> owner_;
  const Members& members_;
  const abi::Events none_;
  bool direct_ = false;    // an allreduce directly in the tensors' memory
  bool scatters_ = false;  // uses oneCCL's reducescatter, not its allreduce
  Buffer sent_, received_;
  std::vector<std::unique_ptr<abi::Event>> events_;
};

}  // namespace hvd::ops::ccl
