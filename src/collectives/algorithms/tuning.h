// The switch points between the algorithms of an inter-host allreduce. The defaults measured best. A
// batch may carry its own, equal on all members of its group. Values only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "horovod/plugin_op.h"

namespace hvd::collectives {

struct Tuning {
  // Bytes of a batch, times the other hosts. One-shot: every host gets every other's data, in one hop.
  size_t one_shot_limit = 64 * 1024;
  // The same for two hosts, which send no more bytes than by any other algorithm, and wait once.
  size_t one_shot_limit_of_two = 4 * 1024 * 1024;
  // Bytes of a batch, as below. Recursive doubling: log2 H hops.
  size_t recursive_doubling_limit = 16 * 1024;
  // Above it each host reduces a slice: few hosts by two-shot, more of them by halving-doubling, large
  // batches around a ring, where no host receives from two others at once.
  int32_t two_shot_hosts = 4;
  size_t ring_from = 4 * 1024 * 1024;
  // Bytes in a piece; several pieces are under way.
  size_t chunk = 256 * 1024;
  // The same for one-shot, where nothing comes back to wait for.
  size_t one_shot_chunk = 512 * 1024;
  // Streams between two ranks, and ranks of a host that drive them.
  int32_t streams = 1;
  int32_t drivers = std::numeric_limits<int32_t>::max();
};

Tuning tuning_of(const hvd_batch& batch);

}  // namespace hvd::collectives
