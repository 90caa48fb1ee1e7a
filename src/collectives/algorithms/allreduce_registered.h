// An allreduce of a group on one host, for tensors in memory that all its ranks can map (SharedHeap):
// each rank reduces its slice in place, and packs nothing.
#pragma once

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "collectives/kernels/reduction.h"

namespace hvd::collectives {

// Returns whether the ranks of the group exchange the places of these tensors; equal on all ranks.
bool may_be_registered(Group& group, const hvd_batch& batch, const Reduction& reduction);

// Exchanges the places, and reduces in place if every tensor of every rank lies in mapped memory.
// *done says whether the reduction took place; it is equal on all ranks.
Coroutine allreduce_registered(Flow& flow, Group& group, const hvd_batch& batch,
                               const Reduction& reduction, bool* done);

}  // namespace hvd::collectives
