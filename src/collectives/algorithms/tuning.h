// The sizes at which an inter-host allreduce changes its algorithm. The defaults were the fastest
// in measurements. A batch may carry its own sizes, equal on all members of its group. Values only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "horovod/plugin_op.h"

namespace hvd::collectives {

// The most streams between two ranks.
constexpr int32_t kMostStreams = 16;

struct Tuning {
  // One-shot, up to this product of the bytes of a batch and the number of other hosts, on at most
  // two_shot_hosts hosts.
  size_t one_shot_limit = 64 * 1024;
  // one_shot_limit for two hosts: between two hosts, one-shot sends no more bytes than the other
  // algorithms, and waits once.
  size_t one_shot_limit_of_two = 4 * 1024 * 1024;
  // Recursive doubling, up to this many bytes of a batch.
  size_t recursive_doubling_limit = 16 * 1024;
  // Larger batches take two-shot on up to two_shot_hosts hosts; on more hosts they take
  // halving-doubling, or a ring from ring_from bytes on. In a ring no host receives from two hosts
  // at once.
  int32_t two_shot_hosts = 4;
  size_t ring_from = 4 * 1024 * 1024;
  // Bytes of a piece; several pieces are in flight.
  size_t chunk = 256 * 1024;
  // Bytes of a piece in one-shot, which has no second hop that waits for a reply.
  size_t one_shot_chunk = 512 * 1024;
  // Streams between two ranks, and the most ranks of a host that drive the inter-host allreduce.
  int32_t streams = 1;
  int32_t drivers = std::numeric_limits<int32_t>::max();
};

Tuning tuning_of(const hvd_batch& batch);

}  // namespace hvd::collectives
