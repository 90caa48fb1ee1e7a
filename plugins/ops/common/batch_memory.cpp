#include "ops/common/batch_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "base/dtype.h"
#include "collectives/kernels/reduce_kernels.h"
#include "collectives/kernels/slice.h"

namespace hvd::ops {
namespace {

using collectives::Scale;

size_t bytes_of(const hvd_batch& batch, int64_t count) {
  return static_cast<size_t>(count) * size_of(static_cast<hvd_dtype>(batch.dtype));
}

std::span<const hvd_batch_tensor> tensors_of(const hvd_batch& batch) {
  return {batch.tensors, batch.tensor_count};
}

// A library adds float16 in float16, which overflows where an average does not: the inputs of an average are
// multiplied by the power of two that makes up for the number of members, and the sum by the rest of the quotient.
bool divides_first(const hvd_batch& batch) {
  return batch.dtype == HVD_FLOAT16 && collectives::scale_after(batch).divisor > 1;
}

double power_above(int64_t members) {
  return static_cast<double>(std::bit_ceil(static_cast<uint64_t>(members)));
}

Scale before_sum(const hvd_batch& batch) {
  if (!divides_first(batch)) return collectives::scale_before(batch);
  return collectives::scale_by(batch.prescale / power_above(batch.divisor));
}

Scale after_sum(const hvd_batch& batch) {
  if (!divides_first(batch)) return collectives::scale_after(batch);
  return collectives::scale_by(power_above(batch.divisor) / batch.divisor);
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

void pack_reduce(const hvd_batch& batch, std::byte* buffer) {
  for (const hvd_batch_tensor& tensor : tensors_of(batch)) {
    if (tensor.input != nullptr) {
      scale(buffer, tensor.input, batch.dtype, tensor.count, before_sum(batch));
    } else {
      collectives::fill_neutral(buffer, static_cast<hvd_dtype>(batch.dtype),
                                static_cast<hvd_reduce_op>(batch.reduce_op),
                                static_cast<size_t>(tensor.count));
    }
    buffer += bytes_of(batch, tensor.count);
  }
}

void unpack_reduce(const hvd_batch& batch, const std::byte* buffer) {
  for (const hvd_batch_tensor& tensor : tensors_of(batch)) {
    if (tensor.output != nullptr) {
      scale(tensor.output, buffer, batch.dtype, tensor.count, after_sum(batch));
    }
    buffer += bytes_of(batch, tensor.count);
  }
}

void pack_scatter(const hvd_batch& batch, int32_t size, std::byte* buffer) {
  const size_t width = size_of(static_cast<hvd_dtype>(batch.dtype));
  for (int32_t member = 0; member < size; ++member) {
    for (const hvd_batch_tensor& tensor : tensors_of(batch)) {
      const auto [first, count] = kept_of(tensor, member, size);
      if (count == 0) continue;
      const auto* input = static_cast<const std::byte*>(tensor.input);
      if (input != nullptr) {
        scale(buffer, input + static_cast<size_t>(first) * width, batch.dtype, count,
              before_sum(batch));
      } else {
        collectives::fill_neutral(buffer, static_cast<hvd_dtype>(batch.dtype),
                                  static_cast<hvd_reduce_op>(batch.reduce_op),
                                  static_cast<size_t>(count));
      }
      buffer += bytes_of(batch, count);
    }
  }
}

void unpack_scatter(const hvd_batch& batch, int32_t index, int32_t size, const std::byte* buffer) {
  for (const hvd_batch_tensor& tensor : tensors_of(batch)) {
    const int64_t count = kept_of(tensor, index, size).second;
    if (tensor.output != nullptr) {
      scale(tensor.output, buffer, batch.dtype, count, after_sum(batch));
    }
    buffer += bytes_of(batch, count);
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
         batch.tensors[0].output != nullptr && !divides_first(batch);
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
