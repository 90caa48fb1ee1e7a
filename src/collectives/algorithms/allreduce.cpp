// Small payloads take one step: every rank stores its payload next to a flag, and every rank
// reduces all payloads in the same order. Large payloads stream through the slots in chunks
// (allreduce_local), and between hosts by allreduce_across.
//
// On several hosts, each host reduces its ranks' data, then the hosts exchange their results. The ranks of a host that
// take part in the exchange are its drivers. Each driver reduces one slice of the host's data and runs the inter-host
// allreduce of this slice (InterHostAllreduce), so that reductions, copies and socket calls are spread over the ranks
// of a host. The number of drivers is equal on all hosts: the number of ranks on the host with the fewest ranks, at
// most Tuning::drivers. In a group with one rank per host, the sockets send the user's memory itself (Tensors).
#include <algorithm>
#include <cstring>
#include <vector>

#include "collectives/algorithms/allreduce_local.h"
#include "collectives/algorithms/collectives.h"
#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "collectives/algorithms/host_stages.h"
#include "collectives/algorithms/inter_host_allreduce.h"
#include "collectives/kernels/reduction.h"
#include "collectives/kernels/tensor_list.h"

namespace hvd::collectives {
namespace {

InterHostConfig config_for(Group& group, const hvd_batch& batch, const Reduction& reduction,
                           const Tuning& tuning) {
  InterHostConfig config;
  config.algorithm =
      choose_algorithm(tuning, group.host_count(), reduction.count * reduction.element);
  config.dtype = batch.dtype;
  config.op = batch.reduce_op;
  config.streams = static_cast<size_t>(tuning.streams);
  config.part =
      host_part_of(batch, reduction, sends_partial_sums(config.algorithm), group.most_local());
  return config;
}

void cut(InterHostConfig& config, size_t total, size_t per_piece) {
  config.pieces = (total + per_piece - 1) / per_piece;
  config.last = total - (config.pieces - 1) * per_piece;
  config.count = config.pieces == 1 ? config.last : per_piece;
}

struct WholeTensor {
  size_t element;
  bool is_input;
  Piece operator()(const hvd_batch_tensor& tensor) const {
    // The allreduce never writes to inputs.
    void* data = is_input ? const_cast<void*>(tensor.input) : tensor.output;
    return {static_cast<std::byte*>(data), static_cast<size_t>(tensor.count) * element};
  }
};

// The tensors of a batch in pieces. A piece within one tensor is reduced in the tensor's output,
// any other piece in a buffer.
class Tensors {
 public:
  Tensors(const hvd_batch& batch, const Reduction& reduction, const InterHostConfig& config)
      : batch_(batch),
        reduction_(reduction),
        config_(config),
        tensors_(batch.tensors, batch.tensor_count),
        inputs_(tensors_, WholeTensor{reduction.element, true}),
        outputs_(tensors_, WholeTensor{reduction.element, false}),
        results_(outputs_),
        buffers_(config.window) {}

  // Packs this host's part of the next piece. Returns the memory for the piece's result.
  std::byte* pack(InterHostAllreduce& inter_host) {
    const size_t count = count_of(packed_);
    const size_t size = count * reduction_.element;
    std::byte* place = place_of(outputs_, packed_, size);
    std::byte* to = place;
    inputs_.next(size, [&](const std::byte* data, size_t part) {
      if (data == nullptr) {
        fill_neutral(to, static_cast<hvd_dtype>(batch_.dtype),
                     static_cast<hvd_reduce_op>(batch_.reduce_op), part / reduction_.element);
      } else if (data != to) {
        std::memcpy(to, data, part);
      }
      to += part;
    });
    if (reduction_.before.active || batch_.dtype == HVD_BOOL) {
      const void* const input = place;
      config_.part.reduce(inter_host.part_of_next(place), &input, 1, count, reduction_.before,
                          config_.part.within);
    }
    ++packed_;
    return place;
  }
  void unpack() {
    const size_t size = count_of(unpacked_) * reduction_.element;
    auto results = results_;
    const std::byte* place = place_of(results_, unpacked_, size);
    results.write(place, size);
    ++unpacked_;
  }
  size_t unpacked() const { return unpacked_; }

 private:
  size_t count_of(size_t piece) const {
    return piece + 1 < config_.pieces ? config_.count : config_.last;
  }
  // Returns the memory of a piece, and advances the walk over the outputs.
  std::byte* place_of(Walk<WholeTensor>& outputs, size_t piece, size_t size) {
    std::byte* first = nullptr;
    size_t parts = 0;
    outputs.next(size, [&](std::byte* data, size_t) {
      if (parts++ == 0) first = data;
    });
    if (parts == 1 && first != nullptr) return first;
    auto& buffer = buffers_[piece % buffers_.size()];
    if (buffer.size() < size)
      buffer.resize(std::max(config_.count, config_.last) * reduction_.element);
    return buffer.data();
  }

  const hvd_batch& batch_;
  const Reduction& reduction_;
  const InterHostConfig& config_;
  std::span<const hvd_batch_tensor> tensors_;
  Walk<WholeTensor> inputs_, outputs_, results_;
  std::vector<std::vector<std::byte>> buffers_;
  size_t packed_ = 0;
  size_t unpacked_ = 0;
};

Coroutine allreduce_solo(Flow& flow, Group& group, const hvd_batch& batch, Reduction& reduction) {
  const Tuning tuning = tuning_of(batch);
  InterHostConfig config = config_for(group, batch, reduction, tuning);
  const size_t piece =
      config.algorithm == Algorithm::kOneShot ? tuning.one_shot_chunk : tuning.chunk;
  cut(config, reduction.count, piece / reduction.element);
  // Keep enough pieces in flight for a ring, which has many hops.
  config.window = std::min(config.pieces, 4 * group.host_count() + 4);
  InterHostAllreduce& inter_host = group.inter_host();
  inter_host.begin(reduction, config);
  Tensors tensors(batch, reduction, config);
  while (tensors.unpacked() < config.pieces) {
    if (inter_host.may_add()) {
      inter_host.add(tensors.pack(inter_host));
      inter_host.advance();
    } else {
      PiecesFinished finished(inter_host, tensors.unpacked() + 1);
      co_await flow.until(finished);
    }
    while (tensors.unpacked() < inter_host.finished()) tensors.unpack();
  }
}

// The leader reduces its host's payloads and runs the inter-host allreduce of them.
Coroutine inter_host_small(Flow& flow, Group& group, const hvd_batch& batch,
                           const Reduction& reduction, uint64_t step, std::byte* result) {
  InterHostConfig config = config_for(group, batch, reduction, tuning_of(batch));
  cut(config, reduction.count, reduction.count);
  InterHostAllreduce& inter_host = group.inter_host();
  inter_host.begin(reduction, config);
  reduce_small(group, reduction, step, config.part.reduce, config.part.within,
               inter_host.part_of_next(result));
  inter_host.add(result);
  PiecesFinished finished(inter_host, 1);
  co_await flow.until(finished);
}

Coroutine small_across(Flow& flow, Group& group, const hvd_batch& batch, Reduction& reduction) {
  const uint64_t step = group.take_steps(1);
  co_await pack_small(flow, group, reduction, step);
  std::byte* result = group.sub_region().result(step);
  if (group.is_leader()) {
    SmallArrived arrived(group, step);
    co_await flow.until(arrived);
    co_await inter_host_small(flow, group, batch, reduction, step, result);
    group.post(kShared, step + 1);
  } else {
    OneReached shared(group, 0, kShared, step + 1);
    co_await flow.until(shared);
  }
  reduction.unpacker.write(result, reduction.count);
  end_small(group, step);
}

// This rank's part of an allreduce in chunks over several hosts.
class DrivenStream {
 public:
  DrivenStream(Group& group, const hvd_batch& batch, Reduction& reduction)
      : tuning(tuning_of(batch)),
        on_host(group, reduction, tuning.chunk),
        inter_host(group.inter_host()),
        group_(group),
        reduction_(reduction) {
    drivers_ = std::min(group.fewest_local(), static_cast<size_t>(std::max(tuning.drivers, 1)));
    is_driver = group.local_index() < drivers_;
    if (!is_driver) return;
    InterHostConfig config = config_for(group, batch, reduction, tuning);
    config.pieces = on_host.chunks();
    config.count = slice(0).count;
    config.last = slice(on_host.chunks() - 1).count;
    // The window equals the number of result buffers.
    config.window = 2;
    part_ = config.part;
    inter_host.begin(reduction, config);
  }

  // Reduces this driver's slice of the data of all ranks of the host, and adds it to the inter-host allreduce.
  void reduce_and_add(size_t chunk) {
    const uint64_t step = on_host.step_of(chunk);
    const Slice own = is_driver ? slice(chunk) : Slice{0, 0};
    std::byte* result = group_.sub_region().result(step) + own.first * reduction_.element;
    if (own.count > 0) {
      const void* inputs[kMaxLocalRanks];
      for (size_t i = 0; i < group_.local_count(); ++i) {
        inputs[i] = group_.sub_region().slot(i, step) + own.first * reduction_.element;
      }
      part_.reduce(inter_host.part_of_next(result), inputs, group_.local_count(), own.count,
                   reduction_.before, part_.within);
    }
    group_.post_all(kReduced, step + 1);
    if (is_driver) inter_host.add(result);
  }

  const Tuning tuning;
  HostStream on_host;
  bool is_driver;
  InterHostAllreduce& inter_host;

 private:
  Slice slice(size_t chunk) const {
    return slice_of(on_host.count_of(chunk), drivers_, group_.local_index(), reduction_.element);
  }

  Group& group_;
  Reduction& reduction_;
  size_t drivers_;
  HostPart part_;
};

// Waits for a condition; a driver advances its inter-host allreduce meanwhile.
Coroutine wait_driving(Flow& flow, DrivenStream& stream, Condition& condition) {
  if (stream.is_driver) {
    AdvancingMeanwhile driving(stream.inter_host, condition);
    co_await flow.until(driving);
  } else {
    co_await flow.until(condition);
  }
}

// Packs the next chunk, then reduces this rank's slice of chunk `chunk`.
Coroutine send_chunk(Flow& flow, Group& group, DrivenStream& stream, size_t chunk) {
  const uint64_t step = stream.on_host.step_of(chunk);
  if (chunk + 1 < stream.on_host.chunks()) {
    // A slot is free when its last chunk has been reduced. A slot of the previous operation is free
    // when that operation's step has been consumed.
    AllReached is_free(group, chunk == 0 ? kConsumed : kReduced, step);
    co_await wait_driving(flow, stream, is_free);
    stream.on_host.pack(chunk + 1);
  }
  AllReached arrived(group, kArrived, step + 1);
  co_await wait_driving(flow, stream, arrived);
  AllReached is_free = buffers_free(group, step);
  co_await wait_driving(flow, stream, is_free);
  stream.reduce_and_add(chunk);
}

Coroutine end_chunk(Flow& flow, Group& group, DrivenStream& stream, size_t chunk) {
  const uint64_t step = stream.on_host.step_of(chunk);
  if (stream.is_driver) {
    PiecesFinished finished(stream.inter_host, chunk + 1);
    co_await flow.until(finished);
  }
  group.post_all(kShared, step + 1);
  AllReached shared(group, kShared, step + 1);
  co_await wait_driving(flow, stream, shared);
  stream.on_host.unpack(chunk);
}

Coroutine stream_across(Flow& flow, Group& group, DrivenStream& stream) {
  const size_t chunks = stream.on_host.chunks();
  AllReached is_free = buffers_free(group, stream.on_host.step_of(0));
  co_await flow.until(is_free);
  stream.on_host.pack(0);
  for (size_t chunk = 0; chunk <= chunks; ++chunk) {
    if (chunk < chunks) co_await send_chunk(flow, group, stream, chunk);
    if (chunk > 0) co_await end_chunk(flow, group, stream, chunk - 1);
  }
}

Coroutine allreduce_across(Flow& flow, Group& group, const hvd_batch& batch, Reduction& reduction) {
  if (group.size() == group.host_count() && batch.op == HVD_ALLREDUCE) {
    co_await allreduce_solo(flow, group, batch, reduction);
  } else if (reduction.count * reduction.element <= kSmallBytes) {
    co_await small_across(flow, group, batch, reduction);
  } else {
    DrivenStream stream(group, batch, reduction);
    co_await stream_across(flow, group, stream);
  }
}

// Runs the allreduce of a group with one member.
void reduce_alone(const hvd_batch& batch, Reduction& reduction) {
  std::vector<std::byte> block(64 * 1024);
  const void* inputs[] = {block.data()};
  const size_t per_block = block.size() / reduction.element;
  for (size_t left = reduction.count; left > 0;) {
    const size_t count = std::min(left, per_block);
    reduction.packer.read(block.data(), count);
    if (reduction.before.active || reduction.after.active || batch.dtype == HVD_BOOL) {
      reduction.reduce(block.data(), inputs, 1, count, reduction.before, reduction.after);
    }
    reduction.unpacker.write(block.data(), count);
    left -= count;
  }
}

Coroutine allreduce_small(Flow& flow, Group& group, Reduction& reduction) {
  const uint64_t step = group.take_steps(1);
  co_await pack_small(flow, group, reduction, step);
  SmallArrived arrived(group, step);
  co_await flow.until(arrived);
  reduce_small(group, reduction, step, reduction.reduce, reduction.after, group.small_result());
  reduction.unpacker.write(group.small_result(), reduction.count);
  end_small(group, step);
}

}  // namespace

Coroutine allreduce(Flow& flow, Group& group, const hvd_batch& batch) {
  Reduction reduction(batch);
  if (reduction.count == 0) co_return;
  if (group.size() == 1) {
    reduce_alone(batch, reduction);
    co_return;
  }
  if (group.host_count() > 1) {
    co_await allreduce_across(flow, group, batch, reduction);
    co_return;
  }
  if (reduction.count * reduction.element <= kSmallBytes) {
    co_await allreduce_small(flow, group, reduction);
    co_return;
  }
  if (may_be_registered(group, batch, reduction)) {
    bool done = false;
    co_await allreduce_registered(flow, group, batch, reduction, &done);
    if (done) co_return;
  }
  co_await allreduce_local(flow, group, batch, reduction);
}

void reduce_one_shot(const hvd_batch& batch, std::span<const void* const> inputs) {
  const Reduction reduction(batch);
  std::vector<const void*> parts(inputs.size());
  size_t offset = 0;
  for (uint32_t i = 0; i < batch.tensor_count; ++i) {
    const hvd_batch_tensor& tensor = batch.tensors[i];
    const auto count = static_cast<size_t>(tensor.count);
    for (size_t member = 0; member < inputs.size(); ++member) {
      const auto* whole = static_cast<const std::byte*>(inputs[member]);
      parts[member] = whole == nullptr ? tensor.input : whole + offset;
    }
    if (count > 0) {
      reduction.reduce(tensor.output, parts.data(), parts.size(), count, reduction.before,
                       reduction.after);
    }
    offset += count * reduction.element;
  }
}

}  // namespace hvd::collectives
