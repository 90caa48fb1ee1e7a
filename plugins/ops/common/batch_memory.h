// What op plugins over a library share: how the tensors of a batch lie in one piece of memory, and
// how factors get in and out. Pure functions of memory; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "horovod/plugin_op.h"

namespace hvd::ops {

// Of a tensor's elements, those that a member keeps of a reducescatter: how many come before them,
// and their number.
std::pair<int64_t, int64_t> kept_of(const hvd_batch_tensor& tensor, int32_t index, int32_t size);

// result[i] = factor * input[i]; a plain copy when the factor is 1 or the type is bool. The two may
// be the same memory.
void scale(void* result, const void* input, int32_t dtype, int64_t count, double factor);

// The tensors of a batch one after another, times its prescale; what a joined rank lacks is the
// reduction's zero.
void pack_reduce(const hvd_batch& batch, std::byte* buffer);
// And back, times its postscale.
void unpack_reduce(const hvd_batch& batch, const std::byte* buffer);

// For a reducescatter: all that member 0 keeps of each tensor, then member 1's, ...
void pack_scatter(const hvd_batch& batch, int32_t size, std::byte* buffer);
void unpack_scatter(const hvd_batch& batch, int32_t index, int32_t size, const std::byte* buffer);
// Elements that each member keeps.
std::vector<int64_t> scatter_counts(const hvd_batch& batch, int32_t size);

// For an allgather: member r brings what it has of each tensor in one piece; the pieces come in the
// order of the members.
void pack_gather(const hvd_batch& batch, std::byte* buffer);
void unpack_gather(const hvd_batch& batch, int32_t size, const std::byte* buffer);
std::vector<int64_t> gather_counts(const hvd_batch& batch, int32_t size);

// Elements of all tensors.
int64_t total_count(const hvd_batch& batch);
// One tensor with both input and output: it may go without a buffer.
bool is_direct(const hvd_batch& batch);
// HVD_CPU memory, a known type, and for reductions a meaning: what any library can be taught.
bool is_known(const hvd_batch& batch);

}  // namespace hvd::ops
