// The batch of an in-place allreduce of a few values inside another algorithm: Adasum reduces dot
// products, alltoall the largest size, and a barrier nothing. Borrows the values.
#pragma once

#include "horovod/plugin_op.h"

namespace hvd::collectives {

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
