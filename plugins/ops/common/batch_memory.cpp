#include "ops/common/batch_memory.h"

#include <cstring>
#include <numeric>
#include <span>

#include "base/dtype.h"
#include "base/operations/op_traits.h"
#include "collectives/kernels/reduce_kernels.h"

namespace hvd::ops {
namespace {

using collectives::Scale;

size_t bytes_of(const hvd_batch& batch, int64_t count) {
  return static_cast<size_t>(count) * size_of(static_cast<hvd_dtype>(batch.dtype));
}

std::span<const hvd_batch_tensor> tensors_of(const hvd_batch& batch) {
  return {batch.tensors, batch.tensor_count};
}

// Packs one tensor, or a part of it, in the type in which the library adds; for nullptr, the neutral element.
std::byte* pack(const hvd_batch& batch, const void* input, int64_t count, std::byte* to) {
  const auto dtype = static_cast<hvd_dtype>(batch.dtype);
  const hvd_dtype in_sum = sum_dtype(batch);
  if (input == nullptr) {
    collectives::fill_neutral(to, in_sum, static_cast<hvd_reduce_op>(batch.reduce_op),
                              static_cast<size_t>(count));
  } else if (in_sum == dtype) {
    scale(to, input, dtype, count, collectives::scale_before(batch));
  } else if (count > 0) {
    collectives::part_function(dtype, HVD_SUM)(to, &input, 1, static_cast<size_t>(count),
                                               collectives::scale_before(batch), {});
  }
  return to + static_cast<size_t>(count) * size_of(in_sum);
}

const std::byte* unpack(const hvd_batch& batch, const std::byte* from, int64_t count, void* to) {
  const hvd_dtype in_sum = sum_dtype(batch);
  if (to != nullptr && in_sum == batch.dtype) {
    scale(to, from, batch.dtype, count, collectives::scale_after(batch));
  } else if (to != nullptr) {
    collectives::to_storage_type(to, reinterpret_cast<const float*>(from), batch.dtype,
                                 static_cast<size_t>(count), collectives::scale_after(batch));
  }
  return from + static_cast<size_t>(count) * size_of(in_sum);
}

}  // namespace

std::pair<int64_t, int64_t> kept_of(const hvd_batch_tensor& tensor, int32_t index, int32_t size) {
  if (tensor.row == 0) return {0, 0};
  const collectives::Slice kept =
      collectives::scattered_rows(static_cast<size_t>(tensor.count / tensor.row),
                                  static_cast<size_t>(size), static_cast<size_t>(index));
  return {static_cast<int64_t>(kept.first) * tensor.row,
          static_cast<int64_t>(kept.count) * tensor.row};
}

void scale(void* result, const void* input, int32_t dtype, int64_t count, const Scale& by) {
  if (count == 0) return;
  if (!by.active || dtype == HVD_BOOL) {
    if (result != input)
      std::memcpy(result, input,
                  static_cast<size_t>(count) * size_of(static_cast<hvd_dtype>(dtype)));
    return;
  }
  const auto function = collectives::reduce_function(static_cast<hvd_dtype>(dtype), HVD_SUM);
  function(result, &input, 1, static_cast<size_t>(count), Scale{}, by);
}

hvd_dtype sum_dtype(const hvd_batch& batch) {
  if (traits_of(batch.op).reduces && batch.dtype == HVD_FLOAT16 &&
      collectives::scale_after(batch).divisor > 1) {
    return HVD_FLOAT32;
  }
  return static_cast<hvd_dtype>(batch.dtype);
}

void pack_reduce(const hvd_batch& batch, std::byte* buffer) {
  for (const hvd_batch_tensor& tensor : tensors_of(batch)) {
    buffer = pack(batch, tensor.input, tensor.count, buffer);
  }
}

void unpack_reduce(const hvd_batch& batch, const std::byte* buffer) {
  for (const hvd_batch_tensor& tensor : tensors_of(batch)) {
    buffer = unpack(batch, buffer, tensor.count, tensor.output);
  }
}

void pack_scatter(const hvd_batch& batch, int32_t size, std::byte* buffer) {
  const size_t width = size_of(static_cast<hvd_dtype>(batch.dtype));
  for (int32_t member = 0; member < size; ++member) {
    for (const hvd_batch_tensor& tensor : tensors_of(batch)) {
      const auto [first, count] = kept_of(tensor, member, size);
      const auto* input = static_cast<const std::byte*>(tensor.input);
      if (input != nullptr) input += static_cast<size_t>(first) * width;
      buffer = pack(batch, input, count, buffer);
    }
  }
}

void unpack_scatter(const hvd_batch& batch, int32_t index, int32_t size, const std::byte* buffer) {
  for (const hvd_batch_tensor& tensor : tensors_of(batch)) {
    buffer = unpack(batch, buffer, kept_of(tensor, index, size).second, tensor.output);
  }
}

std::vector<int64_t> scatter_counts(const hvd_batch& batch, int32_t size) {
  std::vector<int64_t> counts(static_cast<size_t>(size), 0);
  for (int32_t member = 0; member < size; ++member) {
    for (const hvd_batch_tensor& tensor : tensors_of(batch)) {
      counts[static_cast<size_t>(member)] += kept_of(tensor, member, size).second;
    }
  }
  return counts;
}

void pack_gather(const hvd_batch& batch, std::byte* buffer) {
  for (const hvd_batch_tensor& tensor : tensors_of(batch)) {
    const size_t bytes = bytes_of(batch, tensor.count);
    if (bytes > 0) std::memcpy(buffer, tensor.input, bytes);
    buffer += bytes;
  }
}

void unpack_gather(const hvd_batch& batch, int32_t size, const std::byte* buffer) {
  std::vector<std::byte*> to;
  for (const hvd_batch_tensor& tensor : tensors_of(batch)) {
    to.push_back(static_cast<std::byte*>(tensor.output));
  }
  for (int32_t member = 0; member < size; ++member) {
    for (size_t i = 0; i < to.size(); ++i) {
      const hvd_batch_tensor& tensor = batch.tensors[i];
      const size_t bytes = bytes_of(batch, tensor.rank_rows[member] * tensor.row);
      if (bytes > 0) std::memcpy(to[i], buffer, bytes);
      to[i] += bytes;
      buffer += bytes;
    }
  }
}

void unpack_whole(const hvd_batch& batch, int32_t size, const std::byte* buffer) {
  for (const hvd_batch_tensor& tensor : tensors_of(batch)) {
    int64_t count = tensor.count;
    if (batch.op == HVD_ALLTOALL) {
      count = tensor.row * std::accumulate(tensor.from_rows, tensor.from_rows + size, int64_t{0});
    }
    const size_t bytes = bytes_of(batch, count);
    if (bytes > 0) std::memcpy(tensor.output, buffer, bytes);
    buffer += bytes;
  }
}

std::vector<int64_t> gather_counts(const hvd_batch& batch, int32_t size) {
  std::vector<int64_t> counts(static_cast<size_t>(size), 0);
  for (int32_t member = 0; member < size; ++member) {
    for (const hvd_batch_tensor& tensor : tensors_of(batch)) {
      counts[static_cast<size_t>(member)] += tensor.rank_rows[member] * tensor.row;
    }
  }
  return counts;
}

int64_t total_count(const hvd_batch& batch) {
  int64_t total = 0;
  for (const hvd_batch_tensor& tensor : tensors_of(batch)) total += tensor.count;
  return total;
}

bool is_direct(const hvd_batch& batch) {
  return batch.tensor_count == 1 && batch.tensors[0].input != nullptr &&
         batch.tensors[0].output != nullptr && sum_dtype(batch) == batch.dtype;
}

bool is_known(const hvd_batch& batch) {
  if (batch.device != HVD_CPU || !is_dtype(batch.dtype)) return false;
  switch (batch.op) {
    case HVD_ALLREDUCE:
    case HVD_REDUCESCATTER:
      return batch.reduce_op != HVD_ADASUM &&
             collectives::reduce_function(static_cast<hvd_dtype>(batch.dtype),
                                          static_cast<hvd_reduce_op>(batch.reduce_op)) != nullptr;
    case HVD_ALLGATHER:
    case HVD_BROADCAST:
    case HVD_ALLTOALL:
      return true;
    default:
      return false;
  }
}

}  // namespace hvd::ops
