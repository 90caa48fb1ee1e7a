// An allreduce of a group on one host whose tensors only their own ranks can reach: in chunks
// through the slots of the shared memory, each byte touched as few times as possible.
#pragma once

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "collectives/kernels/reduction.h"

namespace hvd::collectives {

Coroutine allreduce_local(Flow& flow, Group& group, const hvd_batch& batch,
                          const Reduction& reduction);

}  // namespace hvd::collectives
