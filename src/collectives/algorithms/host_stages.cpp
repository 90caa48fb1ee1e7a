#include "collectives/algorithms/host_stages.h"

#include <bit>
#include <cmath>

#include "collectives/kernels/reduce_kernels.h"

namespace hvd::collectives {

Coroutine pack_small(Flow& flow, Group& group, Reduction& reduction, uint64_t step) {
  if (!group.small_slot_is_free(step)) {
    AllReached consumed(group, kConsumed, step - 1);
    co_await flow.until(consumed);
  }
  reduction.packer.read(group.sub_region().small(group.local_index(), step).payload,
                        reduction.count);
  group.post_small(step);
}

void reduce_small(Group& group, const Reduction& reduction, uint64_t step, ReduceFunction reduce,
                  const Scale& after, std::byte* result) {
  const void* inputs[kMaxLocalRanks];
  for (size_t i = 0; i < group.local_count(); ++i) {
    inputs[i] = group.sub_region().small(i, step).payload;
  }
  reduce(result, inputs, group.local_count(), reduction.count, reduction.before, after);
}

void end_small(Group& group, uint64_t step) {
  // A member that has posted this step has finished the previous step.
  group.known_consumed = step;
  group.post_all(kConsumed, step + 1);
}

HostPart host_part_of(const hvd_batch& batch, const Reduction& reduction, bool sends_partial_sums,
                      size_t most_ranks) {
  HostPart part{false, reduction.reduce, reduction.none, reduction.after};
  if (!is_half(batch.dtype)) return part;
  const bool several_ranks = most_ranks > 1;
  const bool adds = batch.reduce_op == HVD_SUM || batch.reduce_op == HVD_PRODUCT;
  const bool is_average = reduction.after.divisor > 0;
  // The division of an average prevents overflow, unless a factor above 1 multiplies first.
  const bool fits = !reduction.before.active ||
                    (is_average && several_ranks && std::abs(reduction.before.factor) <= 1);
  if (fits && (!adds || !several_ranks)) return part;
  if (fits && is_average && !sends_partial_sums) {
    if (batch.dtype == HVD_FLOAT16) {
      const auto power = static_cast<double>(std::bit_ceil(most_ranks));
      part.within = scale_by(1 / power);
      part.after = scale_by(power / static_cast<double>(reduction.after.divisor));
    }
    return part;
  }
  part.is_float32 = true;
  part.reduce = part_function(static_cast<hvd_dtype>(batch.dtype),
                              static_cast<hvd_reduce_op>(batch.reduce_op));
  return part;
}

}  // namespace hvd::collectives
