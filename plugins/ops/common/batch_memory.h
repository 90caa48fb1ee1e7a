// Packs the tensors of a batch into one contiguous buffer, unpacks them, and applies the prescale and postscale
// factors. Stateless; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "collectives/kernels/reduction.h"
#include "horovod/plugin_op.h"

namespace hvd::ops {

struct Buffer {
  std::unique_ptr<std::byte[]> bytes;  // nullptr: the allocation failed
  size_t size = 0;
};

class BufferPool {
 public:
  // Returns a buffer of at least `size` uninitialised bytes. The reuse of buffers saves page faults.
  Buffer take(size_t size) {
    const auto fits = std::find_if(spare_.begin(), spare_.end(), [size](const Buffer& one) {
      return one.size >= size && one.size / 4 <= size;
    });
    if (fits == spare_.end()) {
      return {std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[size + 1]), size};
    }
    Buffer taken = std::move(*fits);
    spare_.erase(fits);
    return taken;
  }
  void give(Buffer buffer) {
    if (buffer.bytes == nullptr) return;
    if (spare_.size() == kKept) spare_.erase(spare_.begin());
    spare_.push_back(std::move(buffer));
  }

 private:
  static constexpr size_t kKept = 4;
  std::vector<Buffer> spare_;  // the oldest first
};

// Returns the first element and the number of elements of the slice that member `index` gets from a reducescatter of
// the tensor.
std::pair<int64_t, int64_t> kept_of(const hvd_batch_tensor& tensor, int32_t index, int32_t size);

// result[i] = input[i], scaled; a copy if no scaling is needed or the type is bool. `result` and
// `input` may be the same memory.
void scale(void* result, const void* input, int32_t dtype, int64_t count,
           const collectives::Scale& by);

// Returns the type in which the library adds the elements of a batch: float32 for an average of float16, whose sum may
// overflow although the average does not; otherwise the type of the batch.
hvd_dtype sum_dtype(const hvd_batch& batch);

// Packs the tensors of a batch one after another in sum_dtype, times the batch's prescale. A joined rank, which lacks
// the tensors, packs the neutral element of the reduction.
void pack_reduce(const hvd_batch& batch, std::byte* buffer);
// Unpacks the results, times the batch's postscale or divided by its divisor.
void unpack_reduce(const hvd_batch& batch, const std::byte* buffer);

// Packs, for a reducescatter, member 0's slices of all tensors, then member 1's, ...
void pack_scatter(const hvd_batch& batch, int32_t size, std::byte* buffer);
void unpack_scatter(const hvd_batch& batch, int32_t index, int32_t size, const std::byte* buffer);
// Returns the number of elements that each member keeps.
std::vector<int64_t> scatter_counts(const hvd_batch& batch, int32_t size);

// Packs, for an allgather, this member's inputs of all tensors into one piece. unpack_gather reads the
// pieces of all members, in the order of the members.
void pack_gather(const hvd_batch& batch, std::byte* buffer);
void unpack_gather(const hvd_batch& batch, int32_t size, const std::byte* buffer);
std::vector<int64_t> gather_counts(const hvd_batch& batch, int32_t size);
// Unpacks the outputs of all tensors of a broadcast or an alltoall, one after another. pack_gather packs
// the inputs.
void unpack_whole(const hvd_batch& batch, int32_t size, const std::byte* buffer);

int64_t total_count(const hvd_batch& batch);
// Returns whether the batch needs no buffer: it has a single tensor, with input and output, in the type of the sum.
bool is_direct(const hvd_batch& batch);
// Returns whether the batch is in HVD_CPU memory, and its reduction, if it has one, is not Adasum and is defined for
// its type.
bool is_known(const hvd_batch& batch);

// Returns the reduction for a library without a type for bools. A bool is 0 or 1: "any" is the maximum, "all" the
// minimum.
inline int32_t reduction_of_numbers(int32_t dtype, int32_t reduce_op) {
  if (dtype == HVD_BOOL && reduce_op == HVD_SUM) return HVD_MAX;
  if (dtype == HVD_BOOL && reduce_op == HVD_PRODUCT) return HVD_MIN;
  return reduce_op;
}

}  // namespace hvd::ops
