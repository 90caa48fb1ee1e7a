// An allreduce of a group on one host, for tensors in private memory: copies chunks through the slots
// of the shared memory, and touches each byte as few times as possible.
#pragma once

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "collectives/kernels/reduction.h"

namespace hvd::collectives {

Coroutine allreduce_local(Flow& flow, Group& group, const hvd_batch& batch,
                          const Reduction& reduction);

// Like allreduce_local(), in a step that the caller has reserved, and in which the members also post
// other data. If each member calls pack_first_chunk() before it posts, this saves a step. The
// buffers of the step must be free.
void pack_first_chunk(Group& group, const hvd_batch& batch, const Reduction& reduction,
                      uint64_t step);
Coroutine allreduce_local_from(Flow& flow, Group& group, const hvd_batch& batch,
                               const Reduction& reduction, uint64_t step, bool is_first_packed);

}  // namespace hvd::collectives
