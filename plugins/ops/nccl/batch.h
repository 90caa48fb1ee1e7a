// One batch as calls of NCCL in one group, on the memory of its tensors: nothing is packed. An allreduce
// by hosts is three groups: summed inside each host into a part for each member, those across the hosts,
// and gathered inside each host.
#pragma once

#include <vector>

#include "horovod/plugin_op.h"
#include "ops/nccl/channel.h"
#include "ops/nccl/grid.h"

namespace hvd::ops::nccl {

// Whether NCCL has words for it, in a set of `size` ranks.
bool can_run(const hvd_batch& batch, int32_t size, bool has_factors);

// The place of a rank in its set.
struct Place {
  int32_t index = 0, size = 1;
};

class Collectives {
 public:
  // `grid`: by hosts, on a channel with sub-communicators; else nullptr.
  Collectives(Channel& channel, Place place, const hvd_batch& batch, const Grid* grid = nullptr)
      : channel_(channel), api_(channel.api()), place_(place), batch_(batch), grid_(grid) {}
  // Lets the stream wait for what is to be read, and puts the batch on it, in the order of the calls
  // on all members. `pause`: see Channel. The device is current.
  Status enqueue(const Channel::Pause& pause);
  // After enqueue: what the stream reads until it has come here. Keep it so long.
  std::vector<std::vector<std::byte>> take_kept() { return std::move(kept_); }

 private:
  Status prepare();
  Status group(Channel& on, const Channel::Pause& pause, Status (Collectives::*one)(uint32_t));
  Status reduce_inside(uint32_t tensor);
  Status reduce_across(uint32_t tensor);
  Status gather_inside(uint32_t tensor);
  // Of a tensor that goes by hosts: the elements of each member's part; the rest is summed by all.
  size_t part_of(uint32_t tensor) const;
  Status call(uint32_t tensor);
  Status allreduce(uint32_t tensor);
  Status reducescatter(uint32_t tensor);
  Status allgather(uint32_t tensor);
  Status broadcast(uint32_t tensor);
  Status alltoall(uint32_t tensor);
  Status make_output(uint32_t tensor, int64_t count);
  Status make_neutral(uint32_t tensor);
  Status reduction(int* type, int* operation);
  Status check(int result, const char* what) const;
  size_t width() const;
  const std::byte* input(uint32_t tensor) const;
  std::byte* output(uint32_t tensor) const;

  Channel& channel_;
  const Api& api_;
  const Place place_;
  const hvd_batch& batch_;
  const Grid* const grid_;
  int type_ = 0, operation_ = 0;         // of a reduction
  int across_ = 0;                       // what its second half is, by hosts
  std::vector<void*> inputs_, outputs_;  // in place of what a tensor lacks
  std::vector<void*> lent_;              // for the time of this batch
  std::vector<std::vector<std::byte>> kept_;
};

}  // namespace hvd::ops::nccl
