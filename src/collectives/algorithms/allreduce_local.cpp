// A chunk has one slice per rank. A rank never copies its own slice into its slot: the slot carries
// the rank's data for the slices of the other ranks. A chunk passes three stages, each with one
// pass over memory:
//
//   pack    the other ranks' slices, from the tensors into the slot
//   reduce  this rank's slice, from the tensors and the others' slots, into the tensors and into
//           the slot of the next rank, over that rank's data for the slice
//   unpack  the others' results, from the slots, into the tensors
//
// A core quickly reads lines from another core's cache, and quickly stores to lines that it has
// just read. A store to a line that another core holds is slow. Since results overwrite inputs,
// a byte needs only one such store, in pack.
//
// A stage waits only for work that equally fast ranks finished one stage earlier.
#include "collectives/algorithms/allreduce_local.h"

#include <cstring>
#include <new>

#include "collectives/algorithms/host_stages.h"
#include "collectives/kernels/tensor_list.h"

namespace hvd::collectives {
namespace {

constexpr size_t kLine = 64;

class LocalStream {
 public:
  LocalStream(Group& group, const hvd_batch& batch, const Reduction& reduction, uint64_t first)
      : group_(group),
        sub_region_(group.sub_region()),
        reduction_(reduction),
        dtype_(static_cast<hvd_dtype>(batch.dtype)),
        op_(static_cast<hvd_reduce_op>(batch.reduce_op)),
        stride_(sub_region_.chunk_of(reduction.count * reduction.element) / group.local_count() /
                kLine * kLine),
        per_chunk_(stride_ * group.local_count() / reduction.element),
        chunks_((reduction.count + per_chunk_ - 1) / per_chunk_),
        first_(first),
        packed_({batch.tensors, batch.tensor_count}),
        reduced_(packed_),
        unpacked_(packed_) {}

  Group& group() { return group_; }
  size_t chunks() const { return chunks_; }
  uint64_t step_of(size_t chunk) const { return first_ + chunk; }

  void skip_pack(size_t chunk) { packed_.skip(count_of(chunk)); }

  void pack(size_t chunk) {
    const uint64_t step = step_of(chunk);
    for (size_t rank = 0; rank < group_.local_count(); ++rank) {
      const Slice part = slice(chunk, rank);
      if (rank == group_.local_index()) {
        packed_.skip(part.count);
      } else {
        read(place(group_.local_index(), step, rank), part.count);
      }
    }
    group_.post_all(kArrived, step + 1);
  }

  void reduce(size_t chunk) {
    const uint64_t step = step_of(chunk);
    const Slice own = slice(chunk, group_.local_index());
    reduced_.skip(own.first);
    size_t offset = 0;
    reduced_.next(own.count, [&](const hvd_batch_tensor& tensor, size_t first, size_t count) {
      reduce_part(tensor, first, count, step, offset);
      offset += count * element();
    });
    reduced_.skip(count_of(chunk) - own.first - own.count);
    group_.post_all(kReduced, step + 1);
  }

  void unpack(size_t chunk) {
    const uint64_t step = step_of(chunk);
    for (size_t rank = 0; rank < group_.local_count(); ++rank) {
      const Slice part = slice(chunk, rank);
      if (rank == group_.local_index()) {
        unpacked_.skip(part.count);
      } else {
        write(result(rank, step), part.count);
      }
    }
    group_.post_all(kConsumed, step + 1);
  }

 private:
  size_t element() const { return reduction_.element; }
  size_t count_of(size_t chunk) const {
    return std::min(per_chunk_, reduction_.count - chunk * per_chunk_);
  }
  Slice slice(size_t chunk, size_t rank) const {
    return slice_of(count_of(chunk), group_.local_count(), rank, element());
  }

  // Returns the place of a slice in a rank's slot. The place is equal in all chunks, so that a short last chunk
  // does not overwrite results that other ranks have yet to unpack.
  std::byte* place(size_t rank, uint64_t step, size_t slice) const {
    return sub_region_.slot(rank, step) + slice * stride_;
  }

  // Returns the place of the result of a rank's slice.
  std::byte* result(size_t rank, uint64_t step) const {
    return place((rank + 1) % group_.local_count(), step, rank);
  }

  void read(std::byte* to, size_t count) {
    packed_.next(count, [&](const hvd_batch_tensor& tensor, size_t first, size_t part) {
      if (tensor.input == nullptr) {
        fill_neutral(to, dtype_, op_, part);
      } else {
        std::memcpy(to, static_cast<const std::byte*>(tensor.input) + first * element(),
                    part * element());
      }
      to += part * element();
    });
  }
  void write(const std::byte* from, size_t count) {
    unpacked_.next(count, [&](const hvd_batch_tensor& tensor, size_t first, size_t part) {
      const size_t size = part * element();
      if (tensor.output != nullptr) {
        std::memcpy(static_cast<std::byte*>(tensor.output) + first * element(), from, size);
      }
      from += size;
    });
  }

  // Reduces `count` elements of a tensor, which are at byte `offset` of this rank's slice.
  void reduce_part(const hvd_batch_tensor& tensor, size_t first, size_t count, uint64_t step,
                   size_t offset) {
    const size_t own = group_.local_index();
    const auto* input = static_cast<const std::byte*>(tensor.input);
    auto* output = static_cast<std::byte*>(tensor.output);
    const void* inputs[kMaxLocalRanks];
    const size_t per_block = kBlockBytes / element();
    for (size_t done = 0; done < count; done += per_block) {
      const size_t part = std::min(per_block, count - done);
      for (size_t i = 0; i < group_.local_count(); ++i) {
        inputs[i] = place(i, step, own) + offset;
      }
      if (input != nullptr) {
        inputs[own] = input + (first + done) * element();
      } else {
        fill_neutral(block_, dtype_, op_, part);
        inputs[own] = block_;
      }
      std::byte* shared = result(own, step) + offset;
      std::byte* to = output == nullptr ? shared : output + (first + done) * element();
      reduction_.reduce(to, inputs, group_.local_count(), part, reduction_.before,
                        reduction_.after);
      if (output != nullptr) std::memcpy(shared, to, part * element());
      offset += part * element();
    }
  }

  Group& group_;
  const SubRegion& sub_region_;
  const Reduction& reduction_;
  const hvd_dtype dtype_;
  const hvd_reduce_op op_;
  const size_t stride_;  // bytes
  const size_t per_chunk_;
  const size_t chunks_;
  const uint64_t first_;
  Cursor packed_, reduced_, unpacked_;
  alignas(64) std::byte block_[kBlockBytes];
};

// Minimum size: for fewer bytes, packing takes less time than the exchange of places.
constexpr size_t kLeastBytes = 32 * 1024;
constexpr size_t kMostTensors = 128;

struct TensorPlaces {
  uint64_t count;  // number of tensors; 0 if a tensor is in private memory
  SharedHeap::Place places[kMostTensors];
};
static_assert(sizeof(TensorPlaces) <= kSmallBytes);

TensorPlaces& places_of(Group& group, size_t local, uint64_t step) {
  return *reinterpret_cast<TensorPlaces*>(group.sub_region().small(local, step).payload);
}

bool fill_places(Group& group, const hvd_batch& batch, size_t element, TensorPlaces& own) {
  own.count = 0;
  for (uint32_t i = 0; i < batch.tensor_count; ++i) {
    const auto place = place_of(group, batch.tensors[i], element);
    if (!place) return false;
    own.places[i] = *place;
  }
  own.count = batch.tensor_count;
  return true;
}

// Returns the addresses in this process of every rank's copy of every tensor, by index
// tensor * ranks + rank. `place(rank, tensor)` returns the place on another rank.
template <typename PlaceOf>
Result<std::byte**> reach_all(Group& group, const hvd_batch& batch, size_t element, PlaceOf place) {
  const size_t ranks = group.local_count();
  auto* const bases =
      reinterpret_cast<std::byte**>(group.scratch(batch.tensor_count * ranks * sizeof(std::byte*)));
  for (size_t rank = 0; rank < ranks; ++rank) {
    const size_t on_host = group.mesh().local_index_of(group.global_rank_of_local(rank));
    for (uint32_t i = 0; i < batch.tensor_count; ++i) {
      std::byte*& base = bases[i * ranks + rank];
      if (rank == group.local_index()) {
        base = static_cast<std::byte*>(batch.tensors[i].output);
        continue;
      }
      const SharedHeap::Place theirs = place(rank, i);  // a copy: the peer may change its own
      const auto bytes = static_cast<size_t>(batch.tensors[i].count) * element;
      HVD_ASSIGN_OR_RETURN(base, group.mesh().peer_heaps()->reach(on_host, theirs, bytes));
    }
  }
  return bases;
}

// Reduces `size` bytes at offset `at` of a tensor whose copies begin at `bases`.
void reduce_part(const Group& group, const Reduction& reduction, std::byte* const* bases, size_t at,
                 size_t size) {
  const size_t own = group.local_index();
  const size_t ranks = group.local_count();
  const void* inputs[kMaxLocalRanks];
  for (const size_t end = at + size; at < end; at += kBlockBytes) {
    const size_t part = std::min(kBlockBytes, end - at);
    for (size_t rank = 0; rank < ranks; ++rank) inputs[rank] = bases[rank] + at;
    reduction.reduce(bases[own] + at, inputs, ranks, part / reduction.element, reduction.before,
                     reduction.after);
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (rank != own) std::memcpy(bases[rank] + at, bases[own] + at, part);
    }
  }
}

void reduce_slice(Group& group, const hvd_batch& batch, const Reduction& reduction,
                  std::byte* const* bases) {
  const Slice own =
      slice_of(reduction.count, group.local_count(), group.local_index(), reduction.element);
  Cursor cursor({batch.tensors, batch.tensor_count});
  cursor.skip(own.first);
  cursor.next(own.count, [&](const hvd_batch_tensor& tensor, size_t first, size_t count) {
    const auto index = static_cast<size_t>(&tensor - batch.tensors);
    reduce_part(group, reduction, bases + index * group.local_count(), first * reduction.element,
                count * reduction.element);
  });
}

// Reduces this rank's slice. A failure to reach the memory of a peer ends the operation on all ranks.
void reduce_or_fail(Group& group, const hvd_batch& batch, const Reduction& reduction, uint64_t step,
                    const Result<std::byte**>& bases) {
  if (!bases.ok()) {
    group.mesh().fail(bases.status().with_context(group.mesh().describe(group.mesh().rank())));
    return;
  }
  reduce_slice(group, batch, reduction, bases.value());
  group.post_all(kReduced, step + 1);
}

bool all_have_places(Group& group, uint64_t step, uint32_t count) {
  for (size_t rank = 0; rank < group.local_count(); ++rank) {
    if (places_of(group, rank, step).count != count) return false;
  }
  return true;
}

}  // namespace

Coroutine allreduce_local(Flow& flow, Group& group, const hvd_batch& batch,
                          const Reduction& reduction) {
  return allreduce_local_from(flow, group, batch, reduction, group.take_steps(1), false);
}

void pack_first_chunk(Group& group, const hvd_batch& batch, const Reduction& reduction,
                      uint64_t step) {
  LocalStream(group, batch, reduction, step).pack(0);
}

Coroutine allreduce_local_from(Flow& flow, Group& group, const hvd_batch& batch,
                               const Reduction& reduction, uint64_t step, bool is_first_packed) {
  LocalStream stream(group, batch, reduction, step);
  group.take_steps(stream.chunks() - 1);
  for (size_t turn = 0; turn <= stream.chunks() + 1; ++turn) {
    if (turn > 1) {
      AllReached reduced(group, kReduced, stream.step_of(turn - 2) + 1);
      co_await flow.until(reduced);
      stream.unpack(turn - 2);
    }
    if (turn > 0 && turn <= stream.chunks()) {
      AllReached arrived(group, kArrived, stream.step_of(turn - 1) + 1);
      co_await flow.until(arrived);
      stream.reduce(turn - 1);
    }
    if (turn == 0 && is_first_packed) {
      stream.skip_pack(0);
    } else if (turn < stream.chunks()) {
      AllReached is_free = buffers_free(group, stream.step_of(turn));
      co_await flow.until(is_free);
      stream.pack(turn);
    }
  }
}

bool may_be_registered(Group& group, const hvd_batch& batch, const Reduction& reduction) {
  return group.mesh().peer_heaps() != nullptr && batch.tensor_count <= kMostTensors &&
         reduction.count * reduction.element >= kLeastBytes;
}

Coroutine allreduce_registered(Flow& flow, Group& group, const hvd_batch& batch,
                               const Reduction& reduction, bool* done) {
  *done = false;
  const uint64_t step = group.take_steps(1);
  if (!group.small_slot_is_free(step)) {
    AllReached consumed(group, kConsumed, step - 1);
    co_await flow.until(consumed);
  }
  auto* own = new (group.sub_region().small(group.local_index(), step).payload) TensorPlaces;
  const bool has_places = fill_places(group, batch, reduction.element, *own);
  group.post_small(step);
  if (!has_places) {
    group.post_all(kConsumed, step + 1);
    co_return;
  }
  SmallArrived arrived(group, step);
  co_await flow.until(arrived);
  group.known_consumed = step;
  if (all_have_places(group, step, batch.tensor_count)) {
    reduce_or_fail(group, batch, reduction, step,
                   reach_all(group, batch, reduction.element, [&](size_t rank, uint32_t tensor) {
                     return places_of(group, rank, step).places[tensor];
                   }));
    AllReached reduced(group, kReduced, step + 1);
    co_await flow.until(reduced);
    *done = true;
  }
  group.post_all(kConsumed, step + 1);
}

std::optional<SharedHeap::Place> place_of(Group& group, const hvd_batch_tensor& tensor,
                                          size_t element) {
  const SharedHeap* heap = group.mesh().heap();
  // A joined rank has no memory to share. The result must overwrite the input.
  if (heap == nullptr || tensor.input == nullptr || tensor.input != tensor.output) {
    return std::nullopt;
  }
  return heap->find(tensor.input, static_cast<size_t>(tensor.count) * element);
}

Coroutine reduce_at_places(Flow& flow, Group& group, const hvd_batch& batch,
                           const Reduction& reduction, uint64_t step,
                           std::span<const SharedHeap::Place> places) {
  reduce_or_fail(group, batch, reduction, step,
                 reach_all(group, batch, reduction.element,
                           [&](size_t rank, uint32_t) { return places[rank]; }));
  AllReached reduced(group, kReduced, step + 1);
  co_await flow.until(reduced);
}

}  // namespace hvd::collectives
