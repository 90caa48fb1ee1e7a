// Every member's slot has a place for each other member. First all members agree on the largest
// block, so that they take the same steps. Then the blocks stream through the places. Between hosts
// the leaders send complete places.
#include <vector>

#include "base/dtype.h"
#include "collectives/algorithms/collectives.h"
#include "collectives/algorithms/group.h"
#include "collectives/kernels/tensor_list.h"

namespace hvd::collectives {
namespace {

// Returns the memory of the rows sent to or received from a member.
Piece rows_at(std::byte* data, const int64_t* rows, size_t member, size_t row) {
  int64_t before = 0;
  for (size_t i = 0; i < member; ++i) before += rows[i];
  if (data != nullptr) data += static_cast<size_t>(before) * row;
  return {data, static_cast<size_t>(rows[member]) * row};
}

struct BlockTo {
  size_t element;
  size_t member;
  Piece operator()(const hvd_batch_tensor& tensor) const {
    // The const_cast is safe: inputs are only read.
    return rows_at(static_cast<std::byte*>(const_cast<void*>(tensor.input)), tensor.rank_rows,
                   member, static_cast<size_t>(tensor.row) * element);
  }
};

struct BlockFrom {
  size_t element;
  size_t member;
  Piece operator()(const hvd_batch_tensor& tensor) const {
    return rows_at(static_cast<std::byte*>(tensor.output), tensor.from_rows, member,
                   static_cast<size_t>(tensor.row) * element);
  }
};

class Shuffle {
 public:
  Shuffle(Group& group, const hvd_batch& batch)
      : group_(group),
        element_(size_of(static_cast<hvd_dtype>(batch.dtype))),
        tensors_(batch.tensors, batch.tensor_count) {
    for (size_t member = 0; member < group.size(); ++member) {
      to_.emplace_back(tensors_, BlockTo{element_, member});
      from_.emplace_back(tensors_, BlockFrom{element_, member});
      int64_t to = 0;
      for (const hvd_batch_tensor& tensor : tensors_) {
        to += tensor.rank_rows[member] * tensor.row;
      }
      largest = std::max(largest, to * static_cast<int64_t>(element_));
    }
  }

  // Call this after `largest` has become the maximum over all members.
  void plan() {
    const size_t chunk = group_.sub_region().chunk();
    largest_host_ = 1;
    // The result buffer holds a place for every pair of a remote and a local member.
    for (size_t host = 0; host < group_.host_count() && group_.host_count() > 1; ++host) {
      largest_host_ = std::max(largest_host_, group_.members_of(host).size());
    }
    place_ = std::max<size_t>(chunk / (group_.size() * largest_host_), 1);
    place_ = std::min(place_, static_cast<size_t>(largest));
    steps_ = (static_cast<size_t>(largest) + place_ - 1) / place_;
    first_ = group_.take_steps(steps_);
  }

  uint64_t first() const { return first_; }
  size_t steps() const { return steps_; }

  void pack(size_t index) {
    const uint64_t step = first_ + index;
    std::byte* slot = group_.sub_region().slot(group_.local_index(), step);
    for (size_t member = 0; member < group_.size(); ++member) {
      if (member != group_.index()) to_[member].read(slot + member * place_, place_);
    }
    group_.post_all(kArrived, step + 1);
  }
  void unpack(size_t index) {
    const uint64_t step = first_ + index;
    const size_t own = group_.index();
    for (size_t member = 0; member < group_.size(); ++member) {
      if (member != own) from_[member].write(place_of(member, own, step), place_);
    }
    // A member's own rows go directly from its input to its output.
    from_[own].next(place_, [&](std::byte* data, size_t size) {
      if (data != nullptr)
        to_[own].read(data, size);
      else
        to_[own].skip(size);
    });
    group_.post_all(kConsumed, step + 1);
  }
  void add_transfers(ConcurrentTransfers& transfers, size_t index) {
    const uint64_t step = first_ + index;
    for (size_t host = 0; host < group_.host_count(); ++host) {
      if (host == group_.host_index()) continue;
      PeerStream& peer_stream = group_.peer_stream(host);
      for (const size_t from : group_.local_members()) {
        for (const size_t to : group_.members_of(host)) {
          transfers.send(peer_stream, place_of(from, to, step), place_);
        }
      }
      for (const size_t from : group_.members_of(host)) {
        for (const size_t to : group_.local_members()) {
          transfers.receive(peer_stream, place_of(from, to, step), place_);
        }
      }
    }
  }

  int64_t largest = 0;  // bytes of the largest block

 private:
  std::byte* place_of(size_t from, size_t to, uint64_t step) const {
    const SubRegion& sub_region = group_.sub_region();
    if (group_.host_of(from) == group_.host_index()) {
      return sub_region.slot(group_.local_index_of(from), step) + to * place_;
    }
    return sub_region.result(step) + (from * largest_host_ + group_.local_index_of(to)) * place_;
  }

  Group& group_;
  size_t element_;
  std::span<const hvd_batch_tensor> tensors_;
  std::vector<Walk<BlockTo>> to_;
  std::vector<Walk<BlockFrom>> from_;
  size_t place_ = 0;
  size_t largest_host_ = 0;
  size_t steps_ = 0;
  uint64_t first_ = 0;
};

}  // namespace

Coroutine alltoall(Flow& flow, Group& group, const hvd_batch& batch) {
  Shuffle shuffle(group, batch);
  SmallAllreduce agreement(HVD_MAX, HVD_INT64, &shuffle.largest, 1);
  co_await allreduce(flow, group, agreement.batch());
  if (shuffle.largest == 0) co_return;
  shuffle.plan();
  co_await stream_steps(flow, group, shuffle);
}

}  // namespace hvd::collectives
