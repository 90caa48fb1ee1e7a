// An allreduce of a group on one host, for tensors in private memory: copies chunks through the slots
// of the shared memory, and touches each byte as few times as possible.
#pragma once

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "collectives/kernels/reduction.h"

namespace hvd::collectives {

Coroutine allreduce_local(Flow& flow, Group& group, const hvd_batch& batch,
                          const Reduction& reduction);

// As allreduce_local(), in a step that the caller has taken, and in which the members also post something else. If each
// member copies its first chunk before it posts (pack_first_chunk), no further step is needed. The buffers of the step
// are free.
void pack_first_chunk(Group& group, const hvd_batch& batch, const Reduction& reduction,
                      uint64_t step);
Coroutine allreduce_local_from(Flow& flow, Group& group, const hvd_batch& batch,
                               const Reduction& reduction, uint64_t step, bool is_first_packed);

}  // namespace hvd::collectives
