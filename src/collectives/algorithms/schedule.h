// Chooses the algorithm of an allreduce between hosts, and computes its schedule: what this host sends to and receives
// from other hosts in each hop. All hosts have the same number of hops; some hops are empty. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "collectives/kernels/reduction.h"
#include "horovod/plugin_op.h"

namespace hvd::collectives {

// Maximum number of streams between two ranks.
constexpr int32_t kMostStreams = 16;

// The sizes at which an inter-host allreduce changes its algorithm. The defaults were the fastest in measurements. A
// batch may carry its own sizes, equal on all members of its group.
struct Tuning {
  // On at most two_shot_hosts hosts, one-shot runs if the batch's bytes times the number of other hosts are at most
  // this limit.
  size_t one_shot_limit = 64 * 1024;
  // one_shot_limit for two hosts, on which one-shot does not send more bytes than the other
  // algorithms, and waits only once.
  size_t one_shot_limit_of_two = 4 * 1024 * 1024;
  // Otherwise, recursive doubling runs for batches of at most this many bytes.
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

enum class Algorithm : uint8_t {
  kOneShot,            // each host sends all its data to every other host: one hop
  kRecursiveDoubling,  // partners exchange their sums of 1, 2, 4, ... hosts: log2 H hops
  kTwoShot,            // direct reduce-scatter and allgather: each host reduces a slice: two hops
  kHalvingDoubling,    // recursive halving reduce-scatter, doubling allgather: 2 log2 H hops
  kRing,               // reduce-scatter and allgather from neighbour to neighbour: 2 (H - 1) hops
};

// Returns the algorithm for a batch of this many bytes; equal on all hosts.
Algorithm choose_algorithm(const Tuning& tuning, size_t hosts, size_t bytes);

// Returns whether hosts send sums of several hosts, not only their own data.
bool sends_partial_sums(Algorithm algorithm);

// The elements sent to or received from a host.
struct Transfer {
  size_t host;
  Slice part;
};

struct Hop {
  std::vector<Transfer> sends, receives;
};

struct Schedule {
  std::vector<Hop> hops;
  // The number of reducing hops, which come first. Each reduces data from one or more hosts into one
  // range of local data. The later hops receive results.
  size_t reducing = 0;
  // The last reducing hop of this host; SIZE_MAX: none. After it, the slice `own` has its final result.
  size_t last_reducing = SIZE_MAX;
  Slice own{0, 0};
  // True if hosts send sums of several hosts, not only their own data.
  bool partial = false;
  // True if a hop reduces into memory that the same hop sends.
  bool overwrites = false;
  // The largest number of elements that a reducing hop receives.
  size_t scratch = 0;
};

Schedule make_schedule(Algorithm algorithm, size_t hosts, size_t host, size_t count,
                       size_t element);

}  // namespace hvd::collectives
