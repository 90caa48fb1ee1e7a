// A host's part of a reduction over several hosts: its type between hosts, and where an average is divided. Pure.
#pragma once

#include "collectives/algorithms/schedule.h"
#include "collectives/kernels/reduction.h"
#include "horovod/plugin_op.h"

namespace hvd::collectives {

// Between hosts, parts of half precision are float32 if the host has not rounded them: if several
// ranks add (a sum of 16-bit numbers needs more bits), or if a factor multiplies. Sums and products
// are then rounded once, for any distribution of ranks. Hops that reduce send twice the bytes; hops
// with sums of several hosts use float32 anyway.
//
// An average sends 16 bits where it can, because gradients are averages and float32 would send half as much again
// for 100 MB. float16 is divided before rounding, since the host's sum may overflow where the average does not. The
// divisor is the smallest power of two not below the ranks of any host, so that small numbers stay above zero. The
// sum over hosts is multiplied by the rest of the quotient. bfloat16 overflows only where float32 does.
struct HostPart {
  bool is_float32 = false;
  ReduceFunction reduce = nullptr;  // over the ranks of a host; `before` is the reduction's
  Scale within;                     // applied on the host afterwards
  Scale after;                      // applied after the sum over all hosts
};

// `sends_partial_sums`: see Algorithm. `most_ranks`: the most ranks of any host.
HostPart host_part_of(const hvd_batch& batch, const Reduction& reduction, bool sends_partial_sums,
                      size_t most_ranks);

}  // namespace hvd::collectives
