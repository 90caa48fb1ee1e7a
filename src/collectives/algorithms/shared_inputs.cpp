#include "collectives/algorithms/shared_inputs.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "collectives/kernels/reduction.h"

namespace hvd::collectives {
namespace {

// Minimum size: for fewer bytes, packing takes less time than mapping other ranks' memory and waiting.
constexpr size_t kLeastBytes = 32 * 1024;

// Sizes in bytes. `part` is one member's part of an output or of an input.
struct Sizes {
  size_t input, output, part;
};

Sizes sizes_of(const Group& group, const hvd_batch& batch) {
  const size_t input =
      static_cast<size_t>(batch.tensors[0].count) * size_of(static_cast<hvd_dtype>(batch.dtype));
  if (batch.op == HVD_ALLGATHER) return {input, group.size() * input, input};
  return {input, input / group.size(), input / group.size()};
}

// The inputs of all members, by local index.
using Inputs = std::vector<const void*>;

Result<Inputs> reach(Group& group, const hvd_batch& batch,
                     std::span<const SharedHeap::Place> places) {
  const Sizes sizes = sizes_of(group, batch);
  Inputs inputs;
  for (size_t i = 0; i < group.local_count(); ++i) {
    if (i == group.local_index()) {
      inputs.push_back(batch.tensors[0].input);
      continue;
    }
    const size_t on_host = group.mesh().local_index_of(group.global_rank_of_local(i));
    HVD_ASSIGN_OR_RETURN(const std::byte* const theirs,
                         group.mesh().peer_heaps()->reach(on_host, places[i], sizes.input));
    inputs.push_back(theirs);
  }
  return inputs;
}

void gather(const Group& group, const hvd_batch& batch, const Inputs& inputs) {
  const size_t part = sizes_of(group, batch).part;
  auto* const output = static_cast<std::byte*>(batch.tensors[0].output);
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::byte* const to = output + group.local_members()[i] * part;
    if (inputs[i] != to) std::memcpy(to, inputs[i], part);
  }
}

void reduce(const Group& group, const hvd_batch& batch, Inputs inputs) {
  const size_t part = sizes_of(group, batch).part;
  for (const void*& input : inputs) {
    input = static_cast<const std::byte*>(input) + group.index() * part;
  }
  const auto dtype = static_cast<hvd_dtype>(batch.dtype);
  const ReduceFunction add = reduce_function(dtype, static_cast<hvd_reduce_op>(batch.reduce_op));
  add(batch.tensors[0].output, inputs.data(), inputs.size(), part / size_of(dtype),
      scale_before(batch), scale_after(batch));
}

}  // namespace

bool may_have_shared_input(Group& group, const hvd_batch& batch) {
  if (batch.op != HVD_ALLGATHER && batch.op != HVD_REDUCESCATTER) return false;
  const Sizes sizes = sizes_of(group, batch);
  return group.mesh().peer_heaps() != nullptr && group.size() > 1 &&
         std::max(sizes.input, sizes.output) >= kLeastBytes;
}

std::optional<SharedHeap::Place> place_of_input(Group& group, const hvd_batch& batch) {
  const SharedHeap* heap = group.mesh().heap();
  if (heap == nullptr) return std::nullopt;
  return heap->find(batch.tensors[0].input, sizes_of(group, batch).input);
}

Coroutine read_shared_inputs(Flow& flow, Group& group, const hvd_batch& batch, uint64_t step,
                             std::span<const SharedHeap::Place> places) {
  Result<Inputs> inputs = reach(group, batch, places);
  if (!inputs.ok()) {
    group.mesh().fail(inputs.status().with_context(group.mesh().describe(group.mesh().rank())));
  } else {
    if (batch.op == HVD_ALLGATHER)
      gather(group, batch, *inputs);
    else
      reduce(group, batch, *std::move(inputs));
    group.post_all(kReduced, step + 1);
  }
  // Wait until all other ranks have read the input, since this rank's program may then overwrite it.
  AllReached read(group, kReduced, step + 1);
  co_await flow.until(read);
}

}  // namespace hvd::collectives
