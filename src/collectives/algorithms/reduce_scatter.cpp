// Every member's slot has a place for each member, as in an alltoall. Every member reduces its own place in all
// slots into its output, so no member computes or copies another member's result. A member with fewer rows than
// others leaves the end of its places unused.
//
// In a group on several hosts, the ranks of a host reduce all places, and the leaders send each host only its
// members' places. Parts of half precision may be float32 between hosts (host_stages.h).
#include <vector>

#include "base/dtype.h"
#include "collectives/algorithms/collectives.h"
#include "collectives/algorithms/host_stages.h"
#include "collectives/kernels/reduce_kernels.h"
#include "collectives/kernels/reduction.h"
#include "collectives/kernels/tensor_list.h"

namespace hvd::collectives {
namespace {

// A member's rows in the inputs.
struct RowsFor {
  size_t element;
  size_t members;
  size_t member;
  Piece operator()(const hvd_batch_tensor& tensor) const {
    const auto row = static_cast<size_t>(tensor.row);
    const Slice rows =
        scattered_rows(row == 0 ? 0 : static_cast<size_t>(tensor.count) / row, members, member);
    // The const_cast is safe: inputs are only read.
    auto* data = static_cast<std::byte*>(const_cast<void*>(tensor.input));
    if (data != nullptr) data += rows.first * row * element;
    return {data, rows.count * row * element};
  }
};

// This member's rows, the content of its outputs.
struct OwnRows {
  RowsFor rows;
  Piece operator()(const hvd_batch_tensor& tensor) const {
    return {static_cast<std::byte*>(tensor.output), rows(tensor).size};
  }
};

class Scattering {
 public:
  Scattering(Group& group, const hvd_batch& batch)
      : group_(group),
        sub_region_(group.sub_region()),
        batch_(batch),
        element_(size_of(static_cast<hvd_dtype>(batch.dtype))),
        tensors_(batch.tensors, batch.tensor_count),
        reduce_(reduce_function(static_cast<hvd_dtype>(batch.dtype),
                                static_cast<hvd_reduce_op>(batch.reduce_op))),
        before_(scale_before(batch)),
        after_(scale_after(batch)),
        part_(host_part_of(batch, Reduction(batch), false, group.most_local())),
        part_element_(group.host_count() > 1 && part_.is_float32 ? sizeof(float) : element_),
        output_(tensors_, OwnRows{{element_, group.size(), group.index()}}),
        sizes_(group.size()),
        position_(group.size()),
        first_on_host_(group.host_count()) {
    size_t largest = 0;
    for (size_t member = 0; member < group.size(); ++member) {
      const RowsFor rows{element_, group.size(), member};
      inputs_.emplace_back(tensors_, rows);
      for (const hvd_batch_tensor& tensor : tensors_) sizes_[member] += rows(tensor).size;
      largest = std::max(largest, sizes_[member]);
    }
    size_t next = 0;
    for (size_t host = 0; host < group.host_count(); ++host) {
      first_on_host_[host] = next;
      for (const size_t member : group.members_of(host)) position_[member] = next++;
    }
    // The parts of all places fit into a result buffer.
    place_ = sub_region_.chunk() / group.size() * element_ / part_element_;
    place_ -= place_ % (place_ < 64 ? element_ : 64);
    place_ = std::min(place_, largest);
    steps = largest == 0 ? 0 : (largest + place_ - 1) / place_;
    first = group.take_steps(steps);
  }

  void pack(size_t index) {
    for (size_t member = 0; member < group_.size(); ++member) {
      std::byte* to =
          sub_region_.slot(group_.local_index(), first + index) + position_[member] * place_;
      inputs_[member].next(size_at(member, index), [&](const std::byte* data, size_t size) {
        if (data != nullptr)
          std::memcpy(to, data, size);
        else
          fill_neutral(to, static_cast<hvd_dtype>(batch_.dtype),
                       static_cast<hvd_reduce_op>(batch_.reduce_op), size / element_);
        to += size;
      });
    }
    group_.post_all(kArrived, first + index + 1);
  }

  // On one host: reduces this member's place in every slot into its output.
  void reduce_own(size_t index) {
    size_t offset = position_[group_.index()] * place_;
    output_.next(size_at(group_.index(), index), [&](std::byte* data, size_t size) {
      if (data != nullptr) reduce_slots(reduce_, data, index, offset, size, after_);
      offset += size;
    });
    group_.post_all(kConsumed, first + index + 1);
  }

  // Between hosts: each rank reduces its share of its host's data, the leaders exchange the
  // results, and each rank copies its rows.
  void reduce_share(size_t index) {
    const Slice share = slice_of(group_.size() * place_ / element_, group_.local_count(),
                                 group_.local_index(), element_);
    if (share.count > 0) {
      const size_t offset = share.first * element_;
      reduce_slots(part_.reduce, sub_region_.result(first + index) + share.first * part_element_,
                   index, offset, share.count * element_, part_.within);
    }
    group_.post_all(kReduced, first + index + 1);
  }
  void add_transfers(ConcurrentTransfers& transfers, size_t index) {
    std::byte* result = sub_region_.result(first + index);
    for (size_t host = 0; host < group_.host_count(); ++host) {
      if (host == group_.host_index()) continue;
      PeerStream& peer_stream = group_.peer_stream(host);
      transfers.send(peer_stream, result + first_on_host_[host] * part_place(),
                     group_.members_of(host).size() * part_place());
      transfers.receive(peer_stream, received_from(host), stride());
    }
  }
  void reduce_hosts(size_t index) {
    std::byte* own =
        sub_region_.result(first + index) + first_on_host_[group_.host_index()] * part_place();
    std::vector<const void*> inputs(group_.host_count());
    for (size_t host = 0; host < inputs.size(); ++host) {
      inputs[host] = host == group_.host_index() ? own : received_from(host);
    }
    const size_t count = stride() / part_element_;
    if (part_.is_float32) {
      reduce_function(HVD_FLOAT32, static_cast<hvd_reduce_op>(batch_.reduce_op))(
          own, inputs.data(), inputs.size(), count, scale_by(1), scale_by(1));
      round_in_place(own, count);
    } else {
      reduce_(own, inputs.data(), inputs.size(), count, scale_by(1), part_.after);
    }
    group_.post(kShared, first + index + 1);
  }
  void unpack(size_t index) {
    // The results of this host lie at the front of its parts.
    const size_t host = first_on_host_[group_.host_index()];
    output_.write(sub_region_.result(first + index) + host * part_place() +
                      (position_[group_.index()] - host) * place_,
                  size_at(group_.index(), index));
    group_.post_all(kConsumed, first + index + 1);
  }

  size_t steps;
  uint64_t first;

 private:
  size_t size_at(size_t member, size_t index) const {
    const size_t before = std::min(sizes_[member], index * place_);
    return std::min(sizes_[member] - before, place_);
  }
  void reduce_slots(ReduceFunction reduce, std::byte* to, size_t index, size_t offset, size_t size,
                    const Scale& after) {
    const void* inputs[kMaxLocalRanks];
    for (size_t i = 0; i < group_.local_count(); ++i) {
      inputs[i] = sub_region_.slot(i, first + index) + offset;
    }
    reduce(to, inputs, group_.local_count(), size / element_, before_, after);
  }
  // Rounds float32 to the storage type in blocks, since source and result overlap.
  void round_in_place(std::byte* memory, size_t count) {
    constexpr size_t kBlock = 1024;
    uint16_t block[kBlock];
    for (size_t first = 0; first < count; first += kBlock) {
      const size_t size = std::min(kBlock, count - first);
      to_storage_type(block, reinterpret_cast<const float*>(memory) + first, batch_.dtype, size,
                      part_.after);
      std::memcpy(memory + first * element_, block, size * element_);
    }
  }
  size_t part_place() const { return place_ / element_ * part_element_; }
  size_t stride() const { return group_.local_count() * part_place(); }
  std::byte* received_from(size_t host) {
    return group_.scratch(stride() * group_.host_count()) + host * stride();
  }

  Group& group_;
  const SubRegion& sub_region_;
  const hvd_batch& batch_;
  size_t element_;
  std::span<const hvd_batch_tensor> tensors_;
  ReduceFunction reduce_;
  Scale before_, after_;
  HostPart part_;
  size_t part_element_;                // bytes of an element between hosts
  std::vector<Walk<RowsFor>> inputs_;  // the rows that each member gets
  Walk<OwnRows> output_;
  std::vector<size_t> sizes_;     // bytes that each member gets
  std::vector<size_t> position_;  // place of each member; members of a host are adjacent
  std::vector<size_t> first_on_host_;
  size_t place_;  // bytes
};

Coroutine finish_on_host(Flow& flow, Group& group, Scattering& work, size_t index) {
  const uint64_t step = work.first + index;
  AllReached arrived(group, kArrived, step + 1);
  co_await flow.until(arrived);
  work.reduce_own(index);
}

Coroutine finish_across(Flow& flow, Group& group, Scattering& work, size_t index) {
  const uint64_t step = work.first + index;
  AllReached arrived(group, kArrived, step + 1);
  co_await flow.until(arrived);
  work.reduce_share(index);
  if (group.is_leader()) {
    AllReached reduced(group, kReduced, step + 1);
    co_await flow.until(reduced);
    ConcurrentTransfers transfers;
    work.add_transfers(transfers, index);
    co_await flow.until(transfers);
    work.reduce_hosts(index);
  } else {
    OneReached shared(group, 0, kShared, step + 1);
    co_await flow.until(shared);
  }
  work.unpack(index);
}

}  // namespace

Coroutine reduce_scatter(Flow& flow, Group& group, const hvd_batch& batch) {
  Scattering work(group, batch);
  for (size_t i = 0; i < work.steps; ++i) {
    const uint64_t step = work.first + i;
    AllReached is_free = buffers_free(group, step);
    co_await flow.until(is_free);
    work.pack(i);
    if (group.host_count() == 1) {
      co_await finish_on_host(flow, group, work, i);
    } else {
      co_await finish_across(flow, group, work, i);
    }
  }
}

}  // namespace hvd::collectives
