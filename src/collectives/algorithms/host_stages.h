// The stages of an allreduce on one host. In a job of several hosts, the inter-host allreduce runs between these
// stages. A small payload takes one step, a larger one a step per chunk.
#pragma once

#include <algorithm>

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "collectives/algorithms/schedule.h"
#include "collectives/kernels/reduction.h"
#include "horovod/plugin_op.h"

namespace hvd::collectives {

// A result is copied to several places block by block, so that each block stays in the L1 cache.
constexpr size_t kBlockBytes = 4096;

// Copies this rank's small payload into its slot in shared memory.
Coroutine pack_small(Flow& flow, Group& group, Reduction& reduction, uint64_t step);
// Reduces the small payloads of the host's ranks for a step; the payloads must have arrived.
void reduce_small(Group& group, const Reduction& reduction, uint64_t step, ReduceFunction reduce,
                  const Scale& after, std::byte* result);
void end_small(Group& group, uint64_t step);

// One allreduce in chunks. The member functions are the stages of a chunk on this rank's host.
class HostStream {
 public:
  HostStream(Group& group, Reduction& reduction, size_t largest_chunk = SIZE_MAX)
      : group_(group), sub_region_(group.sub_region()), reduction_(reduction) {
    per_chunk_ = std::min(sub_region_.chunk(), largest_chunk) / reduction_.element;
    chunks_ = (reduction_.count + per_chunk_ - 1) / per_chunk_;
    first_ = group_.take_steps(chunks_);
  }
  Group& group() { return group_; }
  size_t chunks() const { return chunks_; }
  size_t per_chunk() const { return per_chunk_; }
  uint64_t step_of(size_t chunk) const { return first_ + chunk; }
  size_t count_of(size_t chunk) const {
    return std::min(per_chunk_, reduction_.count - chunk * per_chunk_);
  }

  void pack(size_t chunk) {
    const uint64_t step = step_of(chunk);
    reduction_.packer.read(sub_region_.slot(group_.local_index(), step), count_of(chunk));
    group_.post_all(kArrived, step + 1);
  }
  void unpack(size_t chunk) {
    const uint64_t step = step_of(chunk);
    reduction_.unpacker.write(sub_region_.result(step), count_of(chunk));
    group_.post_all(kConsumed, step + 1);
  }

 private:
  Group& group_;
  const SubRegion& sub_region_;
  Reduction& reduction_;
  size_t per_chunk_;
  size_t chunks_;
  uint64_t first_;
};

// The partial result of one host in a reduction over several hosts: its type between hosts, and the division of an
// average.
//
// A 16-bit part is sent as float32 if several ranks of a host add to it, or if a factor multiplies it: its value
// may need more than 16 bits. Sums and products are then rounded only once, for any distribution of ranks over
// hosts. Reducing hops then send twice as many bytes. Hops that send sums of several hosts use float32 in all
// cases.
//
// An average is sent in 16 bits if possible, because gradients are usually averaged, and float32 would send 1.5
// times the bytes. A host divides its float16 sum before rounding: the sum may overflow although the average does
// not. The divisor is the smallest power of two not below the number of ranks of any host, so that small numbers do
// not become zero. The sum over hosts is then multiplied by the remaining factor. bfloat16 has the range of
// float32, and needs no early division.
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
