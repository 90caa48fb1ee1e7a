// The reduction of one batch in host memory: the kernel, the scales, and the copies into and out of chunks.
// The algorithms of collectives/algorithms make one Reduction per allreduce, on the progress thread.
#pragma once

#include <span>

#include "base/dtype.h"
#include "collectives/kernels/reduce_kernels.h"
#include "collectives/kernels/slice.h"
#include "horovod/plugin_op.h"

namespace hvd::collectives {

// Packs the tensors one after another into chunks, in order. For a tensor that this rank does not
// have, packs the neutral element.
class Packer {
 public:
  explicit Packer(const hvd_batch& batch);
  void read(std::byte* to, size_t count);

 private:
  const hvd_batch& batch_;
  size_t element_;
  size_t tensor_ = 0;
  size_t offset_ = 0;  // elements
};

// Unpacks chunks into the outputs, in order.
class Unpacker {
 public:
  explicit Unpacker(const hvd_batch& batch);
  void write(const std::byte* from, size_t count);

 private:
  const hvd_batch& batch_;
  size_t element_;
  size_t tensor_ = 0;
  size_t offset_ = 0;  // elements
};

// Return the factors or divisors of a batch, for inputs and for results.
Scale scale_before(const hvd_batch& batch);
Scale scale_after(const hvd_batch& batch);

// Borrows the batch.
struct Reduction {
  explicit Reduction(const hvd_batch& batch);

  ReduceFunction reduce;
  Scale before, after, none;
  size_t element;  // bytes
  size_t count;    // elements of all tensors
  Packer packer;
  Unpacker unpacker;
};

}  // namespace hvd::collectives
