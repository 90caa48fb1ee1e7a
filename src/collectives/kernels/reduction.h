// The reduction of one batch in host memory: the kernel, the scales, and the copies into and out of chunks.
// The algorithms of collectives/algorithms make one Reduction per allreduce, on the progress thread.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/dtype.h"
#include "collectives/kernels/reduce_kernels.h"
#include "horovod/plugin_op.h"

namespace hvd::collectives {

// Elements [first, first + count) of a chunk, or rows of a tensor.
struct Slice {
  size_t first;
  size_t count;
};

// Returns the slice of `count` elements for part `part` of `parts`: whole cache lines; the last
// part gets the rest.
inline Slice slice_of(size_t count, size_t parts, size_t part, size_t element) {
  const size_t line = 64 / element;
  const size_t each = ((count + parts - 1) / parts + line - 1) / line * line;
  const size_t first = std::min(count, part * each);
  return {first, std::min(count - first, each)};
}

// Returns the rows of a reducescatter for one member. If the rows do not divide evenly, the first
// members get one more row.
inline Slice scattered_rows(size_t rows, size_t members, size_t index) {
  const size_t each = rows / members;
  const size_t longer = rows % members;
  return {index * each + std::min(index, longer), each + (index < longer ? 1 : 0)};
}

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
