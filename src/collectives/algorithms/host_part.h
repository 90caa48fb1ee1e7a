// A host's part of a reduction over several hosts: its type between the hosts, and where an average is divided. Pure.
#pragma once

#include "collectives/algorithms/schedule.h"
#include "collectives/kernels/reduction.h"
#include "horovod/plugin_op.h"

namespace hvd::collectives {

// Between hosts, the parts of half precision are in float32 if the host has rounded nothing yet: if several of
// its ranks add (a sum of 16-bit numbers needs more bits), or a factor multiplies. Sums and products are thus
// rounded once, on any layout of the ranks. Twice the bytes are sent in hops that reduce; hops that send sums of
// several hosts are in float32 anyway.
//
// An average sends 16 bits where it can, because gradients are averages: 100 MB would send half as much again.
// float16 is divided before it is rounded, since the host's sum may overflow where the average does not: by the
// smallest power of two that is no less than the ranks of any host, so that small numbers do not vanish. The sum of
// all hosts' parts is multiplied by the rest of the quotient. bfloat16 overflows where float32 does.
struct HostPart {
  bool is_float32 = false;
  ReduceFunction reduce = nullptr;  // the ranks of a host; `before` is the reduction's
  Scale within;                     // follows on the host
  Scale after;                      // follows over all hosts
};

// `sends_partial_sums`: see Algorithm. `most_ranks`: of one host.
HostPart host_part_of(const hvd_batch& batch, const Reduction& reduction, bool sends_partial_sums,
                      size_t most_ranks);

}  // namespace hvd::collectives
