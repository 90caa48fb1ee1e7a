// One batch that runs through oneCCL. Owns the memory of the batch, because oneCCL may still write to
// it after a job has abandoned the batch. The backend's LibraryThread calls it. Exceptions of oneCCL
// pass through.
#pragma once

#include <memory>
#include <vector>

#include "horovod/plugin_op.h"
#include "ops/ccl/library.h"
#include "ops/common/buffer_pool.h"
#include "ops/common/library_thread.h"

namespace hvd::ops::ccl {

// Where this rank stands among the members, and what they share.
struct Members {
  int32_t index = 0, size = 1;
  abi::Communicator* communicator = nullptr;
};

// Whether oneCCL can run it; the same answer on all members. HVD_CPU memory alone, and no minimum or maximum of
// floating-point numbers. `has_halves`: all ranks' processors have what it needs to add float16 and bfloat16.
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
  // Also gives back what oneCCL and the pool have lent, on the thread that they belong to.
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
  bool direct_ = false;    // an allreduce in the tensors' own memory
  bool scatters_ = false;  // a reducescatter by the library's own, not by an allreduce
  Buffer sent_, received_;
  std::vector<std::unique_ptr<abi::Event>> events_;
};

}  // namespace hvd::ops::ccl
