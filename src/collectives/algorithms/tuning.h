// The sizes at which an inter-host allreduce changes its algorithm. The defaults were the fastest
// in measurements. A batch may carry its own sizes, equal on all members of its group. Plain data without I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "horovod/plugin_op.h"

namespace hvd::collectives {

// Maximum number of streams between two ranks.
constexpr int32_t kMostStreams = 16;

struct Tuning {
  // On at most two_shot_hosts hosts, one-shot runs up to this limit of the batch's bytes times the
  // number of other hosts.
  size_t one_shot_limit = 64 * 1024;
  // one_shot_limit for two hosts, on which one-shot does not send more bytes than the other
  // algorithms, and waits only once.
  size_t one_shot_limit_of_two = 4 * 1024 * 1024;
  // Otherwise recursive doubling runs up to this many bytes of a batch.
  size_t recursive_doubling_limit = 16 * 1024;
  // Larger batches use two-shot on up to two_shot_hosts hosts. On more hosts, these batches use halving-doubling,
  // or a ring from ring_from bytes. In a ring, a host receives from only one host
  // at a time.
  int32_t two_shot_hosts = 4;
  size_t ring_from = 4 * 1024 * 1024;
  // Bytes of a piece; several pieces are in flight.
  size_t chunk = 256 * 1024;
  // Bytes of a piece in one-shot, which has no second hop that waits for a reply.
  size_t one_shot_chunk = 512 * 1024;
  // Number of streams between two ranks; maximum number of a host's ranks that drive the inter-host allreduce.
  int32_t streams = 1;
  int32_t drivers = std::numeric_limits<int32_t>::max();
};

Tuning tuning_of(const hvd_batch& batch);

}  // namespace hvd::collectives
