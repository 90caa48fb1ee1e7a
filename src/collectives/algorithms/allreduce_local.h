// An allreduce of a group on one host, for tensors in private memory: copies chunks through the slots
// of the shared memory, and touches each byte as few times as possible.
#pragma once

#include <optional>
#include <span>

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "collectives/kernels/reduction.h"

namespace hvd::collectives {

Coroutine allreduce_local(Flow& flow, Group& group, const hvd_batch& batch,
                          const Reduction& reduction);

// allreduce_local_from() is like allreduce_local(), but the caller has reserved `step`, in which the members also
// post other data. It takes one step less if each member has called pack_first_chunk() before it posts.
// pack_first_chunk() requires that the buffers of the step are free.
void pack_first_chunk(Group& group, const hvd_batch& batch, const Reduction& reduction,
                      uint64_t step);
Coroutine allreduce_local_from(Flow& flow, Group& group, const hvd_batch& batch,
                               const Reduction& reduction, uint64_t step, bool is_first_packed);

// Returns whether the ranks of one host exchange the places of these tensors, to reduce them in place; they do for a
// few large tensors. Equal on all ranks.
bool may_be_registered(Group& group, const hvd_batch& batch, const Reduction& reduction);

// Exchanges the places of the tensors. If every tensor of every rank lies in memory that all ranks of the host can map
// (SharedHeap), each rank reduces its slice in place, without packing. Sets *done to whether the batch was reduced,
// equally on all ranks.
Coroutine allreduce_registered(Flow& flow, Group& group, const hvd_batch& batch,
                               const Reduction& reduction, bool* done);

// Returns the place of a single tensor, for callers that exchange places together with other data.
std::optional<SharedHeap::Place> place_of(Group& group, const hvd_batch_tensor& tensor,
                                          size_t element);
// Reduces a single tensor in place, in a step that the caller has reserved. The caller then posts kConsumed. `places`:
// the place of each member's tensor, by local index.
Coroutine reduce_at_places(Flow& flow, Group& group, const hvd_batch& batch,
                           const Reduction& reduction, uint64_t step,
                           std::span<const SharedHeap::Place> places);

}  // namespace hvd::collectives
