// An allreduce of a group on one host, for tensors in memory that all its ranks can map (SharedHeap):
// each rank reduces its slice in place, and packs nothing.
#pragma once

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "collectives/kernels/reduction.h"

namespace hvd::collectives {

// Whether the ranks of the group ask each other where these tensors lie; the same on all of them.
bool may_be_registered(Group& group, const hvd_batch& batch, const Reduction& reduction);

// Asks, and does it if it can be done so: *done tells, the same on all ranks.
Coroutine allreduce_registered(Flow& flow, Group& group, const hvd_batch& batch,
                               const Reduction& reduction, bool* done);

}  // namespace hvd::collectives
