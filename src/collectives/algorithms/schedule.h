// Chooses the algorithm of an allreduce between hosts, and computes its schedule: what this host sends
// to and receives from other hosts in each hop. All hosts count the same hops; some hops are empty.
// The inter-host allreduce calls these functions. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/algorithms/tuning.h"
#include "collectives/kernels/reduction.h"

namespace hvd::collectives {

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
  // The last reducing hop of this host; after it, `own` holds the result.
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
