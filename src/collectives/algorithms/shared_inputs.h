// Allgather and reduce-scatter of a group on one host, for inputs in memory that all its ranks can
// map (SharedHeap): each rank reads the others' inputs in place, without packing.
#pragma once

#include <optional>
#include <span>

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "horovod/plugin_op.h"

namespace hvd::collectives {

// Returns whether the ranks of the group exchange the place of the batch's only input; equal on all ranks.
bool may_have_shared_input(Group& group, const hvd_batch& batch);

// Returns the place of the input; empty for private memory.
std::optional<SharedHeap::Place> place_of_input(Group& group, const hvd_batch& batch);

// Runs the batch in a step that the caller has reserved and in which it posts kConsumed afterwards. All ranks have the
// same number of rows. An output may overlap its input only in this rank's part. `places`: inputs by local index.
Coroutine read_shared_inputs(Flow& flow, Group& group, const hvd_batch& batch, uint64_t step,
                             std::span<const SharedHeap::Place> places);

}  // namespace hvd::collectives
