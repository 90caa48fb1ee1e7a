#include "ops/gloo/batch.h"

#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/broadcast.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/dtype.h"
#include "collectives/kernels/reduce_kernels.h"
#include "ops/common/batch_memory.h"

namespace hvd::ops::gloo_backend {
namespace {

using ContextPtr = std::shared_ptr<::gloo::Context>;

// Returns the size in bytes of an element that Gloo sends.
size_t width_of(const hvd_batch& batch) { return size_of(sum_dtype(batch)); }

// Calls use(T*) with an unsigned type as wide as the batch's elements, since Gloo only needs the width.
template <typename Use>
void with_width(size_t width, Use&& use) {
  switch (width) {
    case 1:
      return use(static_cast<uint8_t*>(nullptr));
    case 2:
      return use(static_cast<uint16_t*>(nullptr));
    case 4:
      return use(static_cast<uint32_t*>(nullptr));
    default:
      return use(static_cast<uint64_t*>(nullptr));
  }
}

void reduce_in_place(const ContextPtr& context, const hvd_batch& batch, void* data, int64_t count,
                     uint32_t tag) {
  if (count == 0) return;
  const auto function =
      collectives::reduce_function(sum_dtype(batch), static_cast<hvd_reduce_op>(batch.reduce_op));
  ::gloo::AllreduceOptions options(context);
  options.setTag(tag);
  options.setReduceFunction([function](void* to, const void* a, const void* b, size_t n) {
    const void* const inputs[] = {a, b};
    function(to, inputs, 2, n, {}, {});
  });
  with_width(width_of(batch), [&]<typename T>(T*) {
    options.setOutput(static_cast<T*>(data), static_cast<size_t>(count));
  });
  ::gloo::allreduce(options);
}

void allreduce(const ContextPtr& context, const hvd_batch& batch, uint32_t tag) {
  const int64_t total = total_count(batch);
  if (is_direct(batch)) {
    const hvd_batch_tensor& tensor = batch.tensors[0];
    scale(tensor.output, tensor.input, batch.dtype, total, collectives::scale_before(batch));
    reduce_in_place(context, batch, tensor.output, total, tag);
    scale(tensor.output, tensor.output, batch.dtype, total, collectives::scale_after(batch));
    return;
  }
  std::vector<std::byte> packed(static_cast<size_t>(total) * width_of(batch));
  pack_reduce(batch, packed.data());
  reduce_in_place(context, batch, packed.data(), total, tag);
  unpack_reduce(batch, packed.data());
}

void reducescatter(const ContextPtr& context, const hvd_batch& batch, uint32_t tag) {
  const int64_t total = total_count(batch);
  std::vector<std::byte> packed(static_cast<size_t>(total) * width_of(batch));
  pack_scatter(batch, context->size, packed.data());
  reduce_in_place(context, batch, packed.data(), total, tag);
  const std::vector<int64_t> counts = scatter_counts(batch, context->size);
  size_t before = 0;
  for (int member = 0; member < context->rank; ++member) {
    before += static_cast<size_t>(counts[static_cast<size_t>(member)]);
  }
  unpack_scatter(batch, context->rank, context->size, packed.data() + before * width_of(batch));
}

void allgather(const ContextPtr& context, const hvd_batch& batch, uint32_t tag) {
  const std::vector<int64_t> counts = gather_counts(batch, context->size);
  const auto own = static_cast<size_t>(counts[static_cast<size_t>(context->rank)]);
  size_t total = 0;
  for (const int64_t count : counts) total += static_cast<size_t>(count);
  const size_t width = width_of(batch);
  std::vector<std::byte> sent(own * width), received(total * width);
  pack_gather(batch, sent.data());
  ::gloo::AllgathervOptions options(context);
  options.setTag(tag);
  with_width(width, [&]<typename T>(T*) {
    options.setInput(reinterpret_cast<T*>(sent.data()), own);
    options.setOutput(reinterpret_cast<T*>(received.data()), {counts.begin(), counts.end()});
  });
  ::gloo::allgatherv(options);
  unpack_gather(batch, context->size, received.data());
}

void broadcast(const ContextPtr& context, const hvd_batch& batch, uint32_t tag) {
  for (uint32_t i = 0; i < batch.tensor_count; ++i) {
    const hvd_batch_tensor& tensor = batch.tensors[i];
    const size_t bytes = static_cast<size_t>(tensor.count) * width_of(batch);
    if (bytes == 0) continue;
    if (batch.root == context->rank && tensor.output != tensor.input) {
      std::memcpy(tensor.output, tensor.input, bytes);
    }
    ::gloo::BroadcastOptions options(context);
    options.setTag(tag);
    options.setRoot(batch.root);
    options.setOutput(static_cast<uint8_t*>(tensor.output), bytes);
    ::gloo::broadcast(options);
  }
}

void alltoall(const ContextPtr& context, const hvd_batch& batch, uint32_t tag) {
  const auto size = static_cast<size_t>(context->size);
  const auto width = static_cast<int64_t>(width_of(batch));
  for (uint32_t i = 0; i < batch.tensor_count; ++i) {
    const hvd_batch_tensor& tensor = batch.tensors[i];
    std::vector<int64_t> to_each(size), from_each(size);
    for (size_t r = 0; r < size; ++r) {
      to_each[r] = tensor.rank_rows[r] * tensor.row * width;
      from_each[r] = tensor.from_rows[r] * tensor.row * width;
    }
    uint8_t nothing = 0;  // Gloo requires an address even for zero bytes
    auto* input = static_cast<uint8_t*>(const_cast<void*>(tensor.input));
    auto* output = static_cast<uint8_t*>(tensor.output);
    ::gloo::AlltoallvOptions options(context);
    options.setTag(tag);
    options.setInput(input == nullptr ? &nothing : input, std::move(to_each));
    options.setOutput(output == nullptr ? &nothing : output, std::move(from_each));
    ::gloo::alltoallv(options);
  }
}

}  // namespace

void run_batch(const ContextPtr& context, const hvd_batch& batch, uint32_t tag) {
  switch (batch.op) {
    case HVD_ALLREDUCE:
      return allreduce(context, batch, tag);
    case HVD_REDUCESCATTER:
      return reducescatter(context, batch, tag);
    case HVD_ALLGATHER:
      return allgather(context, batch, tag);
    case HVD_BROADCAST:
      return broadcast(context, batch, tag);
    default:
      return alltoall(context, batch, tag);
  }
}

}  // namespace hvd::ops::gloo_backend
