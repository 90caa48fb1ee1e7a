// An allreduce of a group on several hosts: each host reduces its ranks' data, then the hosts exchange
// their results.
#pragma once

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "collectives/kernels/reduction.h"

namespace hvd::collectives {

Coroutine allreduce_across(Flow& flow, Group& group, const hvd_batch& batch, Reduction& reduction);

}  // namespace hvd::collectives
