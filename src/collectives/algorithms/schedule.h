// Chooses the algorithm of an allreduce between hosts, and computes its schedule: what this host sends
// to and receives from other hosts in each hop. All hosts count the same hops; some hops are empty.
// The inter-host allreduce calls it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/algorithms/tuning.h"
#include "collectives/kernels/reduction.h"

namespace hvd::collectives {

enum class Algorithm : uint8_t {
  kOneShot,            // each host sends all its data to every other one: one hop
  kRecursiveDoubling,  // partners exchange all they have, twice as much each hop: log2 H hops
  kTwoShot,            // direct reduce-scatter and allgather: each host reduces a slice: two hops
  kHalvingDoubling,    // recursive halving reduce-scatter, doubling allgather: 2 log2 H hops
  kRing,               // reduce-scatter and allgather from neighbour to neighbour: 2 (H - 1) hops
};

// Returns the algorithm for a batch of this many bytes; equal on all hosts.
Algorithm choose_algorithm(const Tuning& tuning, size_t hosts, size_t bytes);

// Whether hosts send sums of several hosts, not only their own data.
bool sends_partial_sums(Algorithm algorithm);

// Elements that travel to or from a host.
struct Transfer {
  size_t host;
  Slice part;
};

struct Hop {
  std::vector<Transfer> sends, receives;
};

struct Schedule {
  std::vector<Hop> hops;
  // Number of first hops that reduce: received data is reduced into local data, one range per hop,
  // from one host or several. The other hops receive results.
  size_t reducing = 0;
  // The last of these hops that reduces on this host; after it, `own` holds the result.
  size_t last_reducing = SIZE_MAX;
  Slice own{0, 0};
  // Hosts send partial sums of several hosts, not only their own data.
  bool partial = false;
  // A hop reduces into memory that the same hop sends.
  bool overwrites = false;
  // The most elements that a reducing hop receives.
  size_t scratch = 0;
};

Schedule make_schedule(Algorithm algorithm, size_t hosts, size_t host, size_t count,
                       size_t element);

}  // namespace hvd::collectives
