// The collectives, one coroutine each. All members must call the same collectives in the same
// order. The built-in backend starts the coroutines through Flow. A batch and its tensors must exist until
// the coroutine has ended.
#pragma once

#include <span>

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "horovod/plugin_op.h"

namespace hvd::collectives {

// Returns whether a collective exists for a batch; equal on all members.
bool can_run(const hvd_batch& batch);
// Waits until the group's sub-region is mapped, then runs the collective of the batch.
Coroutine run(Flow& flow, Group& group, const hvd_batch& batch);

// Each rank reduces its slice in the host's shared memory; then the hosts exchange their results.
Coroutine allreduce(Flow& flow, Group& group, const hvd_batch& batch);
Coroutine adasum(Flow& flow, Group& group, const hvd_batch& batch);
Coroutine reduce_scatter(Flow& flow, Group& group, const hvd_batch& batch);
Coroutine allgather(Flow& flow, Group& group, const hvd_batch& batch);
Coroutine broadcast(Flow& flow, Group& group, const hvd_batch& batch);
Coroutine alltoall(Flow& flow, Group& group, const hvd_batch& batch);
Coroutine barrier(Flow& flow, Group& group);

// Reduces the data of all members on this rank alone. `inputs` has one pointer per member: to the member's packed
// tensors, or null for the member whose tensors are the inputs of the batch.
void reduce_one_shot(const hvd_batch& batch, std::span<const void* const> inputs);

// The batch of an in-place allreduce of a few values inside another algorithm: Adasum reduces dot
// products, alltoall the largest size, and a barrier nothing. Borrows the values.
class SmallAllreduce {
 public:
  // `tuning`: hvd_batch.tuning of the batch whose algorithm runs this allreduce.
  SmallAllreduce(hvd_reduce_op op, hvd_dtype dtype, void* values, size_t count,
                 const hvd_tuning* tuning = nullptr)
      : tensor_{values, values, static_cast<int64_t>(count), 1, nullptr, nullptr} {
    batch_.struct_size = sizeof batch_;
    batch_.tuning = tuning;
    batch_.op = HVD_ALLREDUCE;
    batch_.reduce_op = op;
    batch_.dtype = dtype;
    batch_.device = HVD_CPU;
    batch_.prescale = batch_.postscale = 1;
    batch_.tensor_count = 1;
    batch_.tensors = &tensor_;
  }
  SmallAllreduce(const SmallAllreduce&) = delete;
  const hvd_batch& batch() const { return batch_; }

 private:
  hvd_batch_tensor tensor_;
  hvd_batch batch_{};
};

}  // namespace hvd::collectives
