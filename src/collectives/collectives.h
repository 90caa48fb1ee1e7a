// The collectives: one coroutine each, the same call on all members in the same order. A batch
// and its tensors stay alive until the coroutine has ended.
#pragma once

#include "collectives/flow.h"
#include "collectives/group.h"
#include "horovod/plugin_op.h"

namespace hvd::collectives {

// Whether there is a collective for a batch; the same answer on all members.
bool can_run(const hvd_batch& batch);
// The right one of those below, after the group's memory is there.
Job run(Flow& flow, Group& group, const hvd_batch& batch);

// Reduces in the host's shared memory, each rank its slice, then between the leaders of the hosts.
Job allreduce(Flow& flow, Group& group, const hvd_batch& batch);
// An allreduce whose reduction is HVD_ADASUM.
Job adasum(Flow& flow, Group& group, const hvd_batch& batch);
Job reduce_scatter(Flow& flow, Group& group, const hvd_batch& batch);
Job allgather(Flow& flow, Group& group, const hvd_batch& batch);
Job broadcast(Flow& flow, Group& group, const hvd_batch& batch);
Job alltoall(Flow& flow, Group& group, const hvd_batch& batch);
Job barrier(Flow& flow, Group& group);

}  // namespace hvd::collectives
