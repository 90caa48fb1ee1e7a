// The collectives, one coroutine each. All members call the same collectives in the same order. The
// built-in backend starts them through Flow. A batch and its tensors must exist until the coroutine
// has ended.
#pragma once

#include <span>

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "horovod/plugin_op.h"

namespace hvd::collectives {

// Whether there is a collective for a batch; the same answer on all members.
bool can_run(const hvd_batch& batch);
// The right one of those below, after the group's memory is there.
Coroutine run(Flow& flow, Group& group, const hvd_batch& batch);

// Reduces in the host's shared memory, each rank its slice, then between the leaders of the hosts.
Coroutine allreduce(Flow& flow, Group& group, const hvd_batch& batch);
// An allreduce whose reduction is HVD_ADASUM.
Coroutine adasum(Flow& flow, Group& group, const hvd_batch& batch);
Coroutine reduce_scatter(Flow& flow, Group& group, const hvd_batch& batch);
Coroutine allgather(Flow& flow, Group& group, const hvd_batch& batch);
Coroutine broadcast(Flow& flow, Group& group, const hvd_batch& batch);
Coroutine alltoall(Flow& flow, Group& group, const hvd_batch& batch);
Coroutine barrier(Flow& flow, Group& group);

// An allreduce of which all parts are here: of each member all its tensors behind each other, null
// for those that the batch has.
void reduce_one_shot(const hvd_batch& batch, std::span<const void* const> inputs);

}  // namespace hvd::collectives
