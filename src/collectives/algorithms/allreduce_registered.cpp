// The ranks exchange the places of their tensors like a small payload, in a separate step. A rank whose
// tensor is in private memory announces this fact, and does not wait for the other ranks' places.
#include "collectives/algorithms/allreduce_registered.h"

#include <cstring>
#include <new>

#include "collectives/algorithms/host_stages.h"
#include "collectives/kernels/tensor_list.h"

namespace hvd::collectives {
namespace {

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
