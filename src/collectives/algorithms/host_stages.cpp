#include "collectives/algorithms/host_stages.h"

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

}  // namespace hvd::collectives
