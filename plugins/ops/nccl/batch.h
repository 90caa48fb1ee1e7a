// Enqueues one batch on a channel's stream as one group of NCCL calls. The calls use the memory of the tensors and pack
// nothing. A hierarchical allreduce is three groups: a reduce-scatter inside each host, an allreduce across hosts, and
// an allgather inside each host. To multiply by a factor after the sum, a further group runs on a communicator of this
// rank alone.
#pragma once

#include <cstddef>
#include <vector>

#include "base/plugin_record.h"
#include "horovod/plugin_op.h"
#include "ops/nccl/channel.h"
#include "ops/nccl/memory.h"

namespace hvd::ops::nccl {

// Returns whether NCCL has the operations for the batch, in a set of `size` ranks.
bool can_run(const hvd_batch& batch, int32_t size, bool has_factors);

// Returns whether the batch is a trial. Runtimes of earlier releases have no trials.
inline bool is_trial(const hvd_batch& batch) { return field_of(batch, &hvd_batch::is_trial) != 0; }

// Returns whether the batch has factors after its sum: enqueue then needs Channel::kAlone.
bool multiplies_after(const hvd_batch& batch, int32_t size, bool has_factors);

// The index of a rank in its set, and the set's size.
struct RankInSet {
  int32_t index = 0, size = 1;
};

class Collectives {
 public:
  // `grid`: the grid for a hierarchical allreduce, on a channel with sub-communicators; else nullptr.
  Collectives(Channel& channel, Memory& memory, RankInSet place, const hvd_batch& batch,
              const Grid* grid = nullptr)
      : channel_(channel),
        api_(channel.api()),
        memory_(memory),
        place_(place),
        batch_(batch),
        grid_(grid) {}
  // Makes the stream wait for the inputs' events, records `began`, and enqueues the batch. All members enqueue
  // batches in the same order. `pause`: see Channel. The device must be current.
  Status enqueue(const Channel::Pause& pause, void* began);
  // Returns whether an output is in host memory, because the GPU's memory was full.
  bool has_spilled() const { return has_spilled_; }
  // Returns host memory that the stream reads. Call this after enqueue(), and keep the memory until the batch is over.
  std::vector<std::vector<std::byte>> take_kept() { return std::move(kept_); }

 private:
  Status prepare();
  Status group(Channel& on, const Channel::Pause& pause, Status (Collectives::*one)(uint32_t));
  Status reduce_inside(uint32_t tensor);
  Status reduce_across(uint32_t tensor);
  Status gather_inside(uint32_t tensor);
  Status multiply(uint32_t tensor);
  // In a hierarchical allreduce: the number of elements in each member's part of a tensor. All members
  // sum the remainder.
  size_t part_of(uint32_t tensor) const;
  Status call(uint32_t tensor);
  Status allreduce(uint32_t tensor);
  Status reducescatter(uint32_t tensor);
  Status allgather(uint32_t tensor);
  Status broadcast(uint32_t tensor);
  Status alltoall(uint32_t tensor);
  Status make_output(uint32_t tensor, int64_t count);
  Status make_neutral(uint32_t tensor);
  Status prepare_reduction();
  Status check(int result, const char* what) const;
  size_t width() const;
  const std::byte* input(uint32_t tensor) const;
  std::byte* output(uint32_t tensor) const;

  Channel& channel_;
  const NcclApi& api_;
  Memory& memory_;
  const RankInSet place_;
  const hvd_batch& batch_;
  const Grid* const grid_;
  int type_ = 0, operation_ = 0;         // type and operation of a reduction, in NCCL's numbers
  int across_ = 0;                       // the reduction across hosts
  std::vector<double> after_;            // factors after the sum
  int multiplication_ = 0;               // the NCCL operation that multiplies by one of `after_`
  std::vector<void*> inputs_, outputs_;  // device memory for tensors without memory
  std::vector<void*> lent_;              // device memory until the end of this batch
  std::vector<std::vector<std::byte>> kept_;
  bool has_spilled_ = false;
};

}  // namespace hvd::ops::nccl
