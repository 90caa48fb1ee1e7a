// Small payloads take one step: every rank stores its payload next to a flag, and every rank
// reduces all payloads in the same order. Large payloads stream through the slots in chunks
// (allreduce_local), and between hosts by allreduce_across.
#include <vector>

#include "collectives/algorithms/allreduce_across.h"
#include "collectives/algorithms/allreduce_local.h"
#include "collectives/algorithms/allreduce_registered.h"
#include "collectives/algorithms/collectives.h"
#include "collectives/algorithms/host_stages.h"
#include "collectives/kernels/reduction.h"

namespace hvd::collectives {
namespace {

// Runs the allreduce of a group with one member.
void reduce_alone(const hvd_batch& batch, Reduction& reduction) {
  std::vector<std::byte> block(64 * 1024);
  const void* inputs[] = {block.data()};
  const size_t per_block = block.size() / reduction.element;
  for (size_t left = reduction.count; left > 0;) {
    const size_t count = std::min(left, per_block);
    reduction.packer.read(block.data(), count);
    if (reduction.before.active || reduction.after.active || batch.dtype == HVD_BOOL) {
      reduction.reduce(block.data(), inputs, 1, count, reduction.before, reduction.after);
    }
    reduction.unpacker.write(block.data(), count);
    left -= count;
  }
}

Coroutine allreduce_small(Flow& flow, Group& group, Reduction& reduction) {
  const uint64_t step = group.take_steps(1);
  co_await pack_small(flow, group, reduction, step);
  SmallArrived arrived(group, step);
  co_await flow.until(arrived);
  reduce_small(group, reduction, step, reduction.reduce, reduction.after, group.small_result());
  reduction.unpacker.write(group.small_result(), reduction.count);
  end_small(group, step);
}

}  // namespace

Coroutine allreduce(Flow& flow, Group& group, const hvd_batch& batch) {
  Reduction reduction(batch);
  if (reduction.count == 0) co_return;
  if (group.size() == 1) {
    reduce_alone(batch, reduction);
    co_return;
  }
  if (group.host_count() > 1) {
    co_await allreduce_across(flow, group, batch, reduction);
    co_return;
  }
  if (reduction.count * reduction.element <= kSmallBytes) {
    co_await allreduce_small(flow, group, reduction);
    co_return;
  }
  if (may_be_registered(group, batch, reduction)) {
    bool done = false;
    co_await allreduce_registered(flow, group, batch, reduction, &done);
    if (done) co_return;
  }
  co_await allreduce_local(flow, group, batch, reduction);
}

void reduce_one_shot(const hvd_batch& batch, std::span<const void* const> inputs) {
  const Reduction reduction(batch);
  std::vector<const void*> parts(inputs.size());
  size_t offset = 0;
  for (uint32_t i = 0; i < batch.tensor_count; ++i) {
    const hvd_batch_tensor& tensor = batch.tensors[i];
    const auto count = static_cast<size_t>(tensor.count);
    for (size_t member = 0; member < inputs.size(); ++member) {
      const auto* whole = static_cast<const std::byte*>(inputs[member]);
      parts[member] = whole == nullptr ? tensor.input : whole + offset;
    }
    if (count > 0) {
      reduction.reduce(tensor.output, parts.data(), parts.size(), count, reduction.before,
                       reduction.after);
    }
    offset += count * reduction.element;
  }
}

}  // namespace hvd::collectives
