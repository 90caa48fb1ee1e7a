// An allreduce of a group on one host, for tensors in private memory: copies chunks through the slots
// of the shared memory, and touches each byte as few times as possible.
#pragma once

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "collectives/kernels/reduction.h"

namespace hvd::collectives {

Coroutine allreduce_local(Flow& flow, Group& group, const hvd_batch& batch,
                          const Reduction& reduction);

}  // namespace hvd::collectives
