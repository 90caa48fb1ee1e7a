// An allreduce of a group on several hosts: each host reduces its own, then the hosts among each
// other.
#pragma once

#include "collectives/flow.h"
#include "collectives/group.h"
#include "collectives/reduction.h"

namespace hvd::collectives {

Job allreduce_across(Flow& flow, Group& group, const hvd_batch& batch, Reduction& reduction);

}  // namespace hvd::collectives
