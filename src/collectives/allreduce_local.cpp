// A chunk is cut into one slice per rank. A rank's own slice never leaves its tensors on the way
// in: its slot carries what it has of the others' slices, and in the place that is left free, the
// result of its own. So a chunk goes through three stages, and a pass over memory each:
//
//   pack    the others' slices from the tensors into the slot
//   reduce  the own slice, from the tensors and the others' slots, into the tensors and the slot
//   unpack  the others' results from their slots into the tensors
//
// The three stages of one turn belong to three chunks, so that whatever a stage waits for was
// done a stage earlier by ranks that are equally fast.
#include "collectives/allreduce_local.h"

#include <cstring>

#include "base/platform_memory.h"
#include "collectives/host_stages.h"
#include "collectives/tensor_list.h"

namespace hvd::collectives {
namespace {

constexpr size_t kLine = 64;
// Nothing of a result that is so long is left in the caches when its user comes to it.
constexpr size_t kBeyondCaches = 32 << 20;

class LocalStream {
 public:
  LocalStream(Group& group, const hvd_batch& batch, const Reduction& reduction)
      : group_(group),
        segment_(group.segment()),
        reduction_(reduction),
        dtype_(static_cast<hvd_dtype>(batch.dtype)),
        op_(static_cast<hvd_reduce_op>(batch.reduce_op)),
        stride_(segment_.chunk_of(reduction.count * reduction.element) / group.local_count() /
                kLine * kLine),
        per_chunk_(stride_ * group.local_count() / reduction.element),
        chunks_((reduction.count + per_chunk_ - 1) / per_chunk_),
        outlives_caches_(reduction.count * reduction.element >= kBeyondCaches),
        first_(group.take_steps(chunks_)),
        packed_({batch.tensors, batch.tensor_count}),
        reduced_(packed_),
        unpacked_(packed_) {}

  Group& group() { return group_; }
  size_t chunks() const { return chunks_; }
  uint64_t step_of(size_t chunk) const { return first_ + chunk; }

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
    settle_past_caches();
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
    settle_past_caches();
    group_.post_all(kReduced, step + 1);
  }

  void unpack(size_t chunk) {
    const uint64_t step = step_of(chunk);
    for (size_t rank = 0; rank < group_.local_count(); ++rank) {
      const Slice part = slice(chunk, rank);
      if (rank == group_.local_index()) {
        unpacked_.skip(part.count);
      } else {
        write(place(rank, step, rank), part.count);
      }
    }
    if (outlives_caches_) settle_past_caches();
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

  // Where a rank's slot has its part of a slice. The same in all chunks, so that a short one at the
  // end leaves results alone that others have yet to unpack.
  std::byte* place(size_t rank, uint64_t step, size_t slice) const {
    return segment_.slot(rank, step) + slice * stride_;
  }

  void read(std::byte* to, size_t count) {
    packed_.next(count, [&](const hvd_batch_tensor& tensor, size_t first, size_t part) {
      if (tensor.input == nullptr) {
        fill_neutral(to, dtype_, op_, part);
      } else {
        copy_past_caches(to, static_cast<const std::byte*>(tensor.input) + first * element(),
                         part * element());
      }
      to += part * element();
    });
  }
  void write(const std::byte* from, size_t count) {
    unpacked_.next(count, [&](const hvd_batch_tensor& tensor, size_t first, size_t part) {
      const size_t size = part * element();
      if (tensor.output != nullptr) {
        std::byte* to = static_cast<std::byte*>(tensor.output) + first * element();
        if (outlives_caches_) copy_past_caches(to, from, size);
        else std::memcpy(to, from, size);
      }
      from += size;
    });
  }

  // `count` elements of a tensor, which are those of the own slice `offset` bytes into it.
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
      std::byte* result = output == nullptr ? block_ : output + (first + done) * element();
      if (input != nullptr) {
        inputs[own] = input + (first + done) * element();
      } else {
        fill_neutral(block_, dtype_, op_, part);
        inputs[own] = block_;
      }
      reduction_.reduce(result, inputs, group_.local_count(), part, reduction_.before,
                        reduction_.after);
      copy_past_caches(place(own, step, own) + offset, result, part * element());
      offset += part * element();
    }
  }

  Group& group_;
  const Segment& segment_;
  const Reduction& reduction_;
  const hvd_dtype dtype_;
  const hvd_reduce_op op_;
  const size_t stride_;  // bytes
  const size_t per_chunk_;
  const size_t chunks_;
  const bool outlives_caches_;  // the result, before anybody looks at it
  const uint64_t first_;
  Cursor packed_, reduced_, unpacked_;
  alignas(64) std::byte block_[kBlockBytes];
};

}  // namespace

Job allreduce_local(Flow& flow, Group& group, const hvd_batch& batch, const Reduction& reduction) {
  LocalStream stream(group, batch, reduction);
  // The buffers of a step are those of the step before the last, which may be another operation's.
  const uint64_t first = stream.step_of(0);
  if (first > 0) {
    AllReached consumed(group, kConsumed, first - 1);
    co_await flow.until(consumed);
  }
  stream.pack(0);
  for (size_t chunk = 0; chunk <= stream.chunks(); ++chunk) {
    const uint64_t step = stream.step_of(chunk);
    if (chunk + 1 < stream.chunks()) {
      AllReached is_free(group, chunk == 0 ? kConsumed : kReduced, step);
      co_await flow.until(is_free);
      stream.pack(chunk + 1);
    }
    if (chunk < stream.chunks()) {
      AllReached arrived(group, kArrived, step + 1);
      co_await flow.until(arrived);
      if (chunk > 1) {
        AllReached consumed(group, kConsumed, step - 1);
        co_await flow.until(consumed);
      }
      stream.reduce(chunk);
    }
    if (chunk > 0) {
      AllReached reduced(group, kReduced, step);
      co_await flow.until(reduced);
      stream.unpack(chunk - 1);
    }
  }
}

}  // namespace hvd::collectives
