// Parameters that all parts of one allreduce share, and its copies in and out.
#pragma once

#include <algorithm>
#include <span>

#include "base/dtype.h"
#include "collectives/kernels/reduce_kernels.h"
#include "horovod/plugin_op.h"

namespace hvd::collectives {

// Elements [first, first + count) of a chunk.
struct Slice {
  size_t first;
  size_t count;
};

// The part of `count` elements that one of `parts` takes: whole cache lines, the last one less.
inline Slice slice_of(size_t count, size_t parts, size_t part, size_t element) {
  const size_t line = 64 / element;
  const size_t each = ((count + parts - 1) / parts + line - 1) / line * line;
  const size_t first = std::min(count, part * each);
  return {first, std::min(count - first, each)};
}

// A reducescatter's rows go to the members as evenly as they can, the first ones one more.
inline Slice rows_of(size_t rows, size_t members, size_t index) {
  const size_t each = rows / members;
  const size_t longer = rows % members;
  return {index * each + std::min(index, longer), each + (index < longer ? 1 : 0)};
}

// Packs the tensors one after another into chunks, in order. A tensor that this rank does not
// have contributes what changes nothing.
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
