// The partial result of one host in a reduction over several hosts: its type between hosts, and the division of an
// average. Pure.
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
// An average sends 16 bits if possible, because gradients are averages, and float32 would send 1.5 times as much for
// 100 MB. float16 is divided before rounding, since the host's sum may overflow although the average does not. The
// divisor is the smallest power of two not below the number of ranks of any host, so that small numbers do not become
// zero; the sum over hosts is multiplied by the rest of the quotient. bfloat16 has the range of float32.
struct HostPart {
  bool is_float32 = false;
  ReduceFunction reduce = nullptr;  // over the host's ranks, with Reduction::before
  Scale within;                     // applied to the host's result
  Scale after;                      // applied after the sum over all hosts
};

// `sends_partial_sums`: see schedule.h. `most_ranks`: maximum number of ranks on a host.
HostPart host_part_of(const hvd_batch& batch, const Reduction& reduction, bool sends_partial_sums,
                      size_t most_ranks);

}  // namespace hvd::collectives
