// The root streams its data through its slot, and the ranks of its host copy the data out. The
// leaders of the hosts form a binomial tree with the root's host as its root; each leader forwards
// a chunk as soon as it has received the chunk.
#include <algorithm>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "collectives/algorithms/collectives.h"
#include "collectives/kernels/tensor_list.h"

namespace hvd::collectives {
namespace {

struct WholeOutput {
  size_t element;
  Piece operator()(const hvd_batch_tensor& tensor) const {
    return {static_cast<std::byte*>(tensor.output), static_cast<size_t>(tensor.count) * element};
  }
};

// The places of the hosts in the tree, counted from the root's host.
struct Tree {
  size_t count;
  size_t root;
  size_t host;

  size_t place() const { return (host + count - root) % count; }
  size_t host_at(size_t place) const { return (place + root) % count; }
  // The parent's place is this place without its lowest set bit.
  size_t parent() const { return host_at(place() & (place() - 1)); }
  std::vector<size_t> children() const {
    std::vector<size_t> found;
    const size_t own = place();
    for (size_t bit = 1; bit < count && (own & bit) == 0; bit <<= 1) {
      if (own + bit < count) found.push_back(host_at(own + bit));
    }
    // Send to the largest subtree first.
    std::reverse(found.begin(), found.end());
    return found;
  }
};

class Casting {
 public:
  Casting(Group& group, const hvd_batch& batch)
      : root(static_cast<size_t>(batch.root)),
        on_root_host(group.host_of(root) == group.host_index()),
        tree{group.host_count(), group.host_of(root), group.host_index()},
        group_(group),
        element_(size_of(static_cast<hvd_dtype>(batch.dtype))),
        tensors_(batch.tensors, batch.tensor_count),
        input_(tensors_, WholeInput{element_}),
        output_(tensors_, WholeOutput{element_}) {
    for (const hvd_batch_tensor& tensor : tensors_) {
      size_ += static_cast<size_t>(tensor.count) * element_;
    }
    const size_t chunk = group.sub_region() ? group.sub_region().chunk() : 1;
    // A single member only copies, and reserves no step, since no other rank would consume it.
    steps = group.size() == 1 ? 0 : (size_ + chunk - 1) / chunk;
    first = group.take_steps(steps);
  }

  size_t size_at(size_t index) const {
    const size_t chunk = group_.sub_region().chunk();
    return std::min(chunk, size_ - index * chunk);
  }
  std::byte* data(size_t index) const {
    const SubRegion& sub_region = group_.sub_region();
    return on_root_host ? sub_region.slot(group_.local_index_of(root), first + index)
                        : sub_region.result(first + index);
  }
  void pack(size_t index) { input_.read(data(index), size_at(index)); }
  void unpack(size_t index) { output_.write(data(index), size_at(index)); }
  void copy_own() {
    for (const hvd_batch_tensor& tensor : tensors_) {
      const size_t size = static_cast<size_t>(tensor.count) * element_;
      if (size > 0 && tensor.output != nullptr && tensor.output != tensor.input) {
        std::memcpy(tensor.output, tensor.input, size);
      }
    }
  }

  const size_t root;
  const bool on_root_host;
  const Tree tree;
  size_t steps;
  uint64_t first;

 private:
  Group& group_;
  size_t element_;
  std::span<const hvd_batch_tensor> tensors_;
  Walk<WholeInput> input_;
  Walk<WholeOutput> output_;
  size_t size_ = 0;
};

// Runs the leader's part: receives the chunk unless its host has it, and forwards it.
Coroutine pass_on(Flow& flow, Group& group, Casting& casting, size_t index) {
  const uint64_t step = casting.first + index;
  if (casting.on_root_host) {
    OneReached arrived(group, group.local_index_of(casting.root), kArrived, step + 1);
    co_await flow.until(arrived);
  } else {
    AllReached is_free = buffers_free(group, step);
    co_await flow.until(is_free);
    ConcurrentTransfers from_parent;
    from_parent.receive(group.peer_stream(casting.tree.parent()), casting.data(index),
                        casting.size_at(index));
    co_await flow.until(from_parent);
    group.post(kShared, step + 1);
  }
  ConcurrentTransfers to_children;
  for (const size_t host : casting.tree.children()) {
    to_children.send(group.peer_stream(host), casting.data(index), casting.size_at(index));
  }
  co_await flow.until(to_children);
}

}  // namespace

Coroutine broadcast(Flow& flow, Group& group, const hvd_batch& batch) {
  Casting casting(group, batch);
  const bool is_root = group.index() == casting.root;
  if (group.size() == 1) {
    casting.copy_own();
    co_return;
  }
  for (size_t i = 0; i < casting.steps; ++i) {
    const uint64_t step = casting.first + i;
    if (is_root) {
      AllReached is_free = buffers_free(group, step);
      co_await flow.until(is_free);
      casting.pack(i);
      group.post(kArrived, step + 1);
    }
    if (group.host_count() > 1 && group.is_leader()) {
      co_await pass_on(flow, group, casting, i);
    } else if (!is_root && casting.on_root_host) {
      OneReached arrived(group, group.local_index_of(casting.root), kArrived, step + 1);
      co_await flow.until(arrived);
    } else if (!is_root) {
      OneReached shared(group, 0, kShared, step + 1);
      co_await flow.until(shared);
    }
    if (!is_root) casting.unpack(i);
    group.post_all(kConsumed, step + 1);
  }
  if (is_root) casting.copy_own();
}

}  // namespace hvd::collectives
