// Every member streams its tensors through its slot, and copies the data out of all slots, step by
// step. The leader of each host sends the slots of its host to all other leaders, which store them
// in the result buffer, where each member has a place.
#include <vector>

#include "base/dtype.h"
#include "collectives/algorithms/collectives.h"
#include "collectives/algorithms/group.h"
#include "collectives/kernels/tensor_list.h"

namespace hvd::collectives {
namespace {

// A member's rows in the outputs.
struct RowsOf {
  size_t element;
  size_t member;
  Piece operator()(const hvd_batch_tensor& tensor) const {
    int64_t before = 0;
    for (size_t i = 0; i < member; ++i) before += tensor.rank_rows[i];
    const size_t row = static_cast<size_t>(tensor.row) * element;
    auto* output = static_cast<std::byte*>(tensor.output);
    if (output != nullptr) output += static_cast<size_t>(before) * row;
    return {output, static_cast<size_t>(tensor.rank_rows[member]) * row};
  }
};

class AllgatherSteps {
 public:
  AllgatherSteps(Group& group, const hvd_batch& batch)
      : group_(group),
        element_(size_of(static_cast<hvd_dtype>(batch.dtype))),
        tensors_(batch.tensors, batch.tensor_count),
        input_(tensors_, WholeInput{element_}),
        sizes_(group.size()) {
    // The data of a local member is in its slot; the data of a remote member is in a part of the result buffer.
    place_ = group.sub_region().chunk();
    if (group.host_count() > 1) place_ = place_ / group.size() / 64 * 64;
    size_t largest = 0;
    for (size_t member = 0; member < group.size(); ++member) {
      outputs_.emplace_back(tensors_, RowsOf{element_, member});
      for (const hvd_batch_tensor& tensor : tensors_) {
        sizes_[member] += static_cast<size_t>(tensor.rank_rows[member] * tensor.row) * element_;
      }
      largest = std::max(largest, sizes_[member]);
    }
    steps_ = (largest + place_ - 1) / place_;
    first_ = group.take_steps(steps_);
  }

  uint64_t first() const { return first_; }
  size_t steps() const { return steps_; }

  void pack(size_t index) {
    const uint64_t step = first_ + index;
    input_.read(group_.sub_region().slot(group_.local_index(), step),
                size_at(group_.index(), index));
    group_.post_all(kArrived, step + 1);
  }
  void unpack(size_t index) {
    const uint64_t step = first_ + index;
    for (size_t member = 0; member < group_.size(); ++member) {
      outputs_[member].write(place_of(member, step), size_at(member, index));
    }
    group_.post_all(kConsumed, step + 1);
  }
  void add_transfers(ConcurrentTransfers& transfers, size_t index) {
    const uint64_t step = first_ + index;
    for (size_t host = 0; host < group_.host_count(); ++host) {
      if (host == group_.host_index()) continue;
      PeerStream& peer_stream = group_.peer_stream(host);
      for (const size_t member : group_.local_members()) {
        transfers.send(peer_stream, place_of(member, step), size_at(member, index));
      }
      for (const size_t member : group_.members_of(host)) {
        transfers.receive(peer_stream, place_of(member, step), size_at(member, index));
      }
    }
  }

 private:
  size_t size_at(size_t member, size_t index) const {
    const size_t before = std::min(sizes_[member], index * place_);
    return std::min(sizes_[member] - before, place_);
  }
  std::byte* place_of(size_t member, uint64_t step) const {
    const SubRegion& sub_region = group_.sub_region();
    if (group_.host_of(member) == group_.host_index()) {
      return sub_region.slot(group_.local_index_of(member), step);
    }
    return sub_region.result(step) + member * place_;
  }

  Group& group_;
  size_t element_;
  std::span<const hvd_batch_tensor> tensors_;
  Walk<WholeInput> input_;
  std::vector<Walk<RowsOf>> outputs_;
  std::vector<size_t> sizes_;
  size_t place_;
  size_t steps_;
  uint64_t first_;
};

}  // namespace

Coroutine allgather(Flow& flow, Group& group, const hvd_batch& batch) {
  AllgatherSteps steps(group, batch);
  co_await stream_steps(flow, group, steps);
}

}  // namespace hvd::collectives
