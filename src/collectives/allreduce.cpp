// Small payloads go in one step: everybody puts its own next to a flag, everybody reduces all of
// them in the same order. Large ones stream through the slots in chunks: each rank packs a chunk
// into its slot, reduces its slice of it over all slots into the result, and unpacks the result
// while the next chunk is under way.
//
// Between hosts the leaders go on with what their host has reduced: each owns a slice, gets the
// others' parts of it, reduces them in the order of the hosts and sends the outcome back. A sum in
// half precision is thus rounded once per host and once at the end, whatever the number of ranks.
#include <vector>

#include "collectives/collectives.h"
#include "collectives/reduction.h"

namespace hvd::collectives {
namespace {

constexpr auto kArrived = &MemberFlags::arrived;
constexpr auto kReduced = &MemberFlags::reduced;
constexpr auto kConsumed = &MemberFlags::consumed;
constexpr auto kShared = &MemberFlags::shared;

// Nobody else takes part.
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

// What the other leaders sent of a slice, after this host's own part, in the order of the hosts.
void reduce_hosts(Group& group, const Reduction& reduction, std::byte* own,
                  const std::byte* received, size_t stride, size_t count) {
  std::vector<const void*> inputs(group.host_count());
  for (size_t host = 0; host < group.host_count(); ++host) {
    inputs[host] = host == group.host_index()
                       ? own
                       : received + stride * (host < group.host_index() ? host : host - 1);
  }
  reduction.reduce(own, inputs.data(), inputs.size(), count, reduction.none, reduction.after);
}

// Every leader gets every other one's result and reduces them all.
Job exchange_small(Flow& flow, Group& group, const Reduction& reduction, std::byte* own) {
  const size_t size = reduction.count * reduction.element;
  std::byte* received = group.scratch(size * (group.host_count() - 1));
  std::vector<std::byte> sent(own, own + size);
  Exchange exchange;
  std::byte* next = received;
  for (size_t host = 0; host < group.host_count(); ++host) {
    if (host == group.host_index()) continue;
    exchange.send(group.lane(host), sent.data(), size);
    exchange.receive(group.lane(host), next, size);
    next += size;
  }
  co_await flow.until(exchange);
  reduce_hosts(group, reduction, own, received, size, reduction.count);
}

void reduce_small(Group& group, const Reduction& reduction, uint64_t step, std::byte* result) {
  const void* inputs[kMaxLocalRanks];
  for (size_t i = 0; i < group.local_count(); ++i) {
    inputs[i] = group.segment().small(i, step).payload;
  }
  reduction.reduce(result, inputs, group.local_count(), reduction.count, reduction.before,
                   group.host_count() > 1 ? reduction.none : reduction.after);
}

Job allreduce_small(Flow& flow, Group& group, Reduction& reduction) {
  const Segment& segment = group.segment();
  const uint64_t step = group.take_steps(1);
  const bool across = group.host_count() > 1;
  if (step > 0 && group.known_consumed < step - 1) {
    AllReached consumed(group, kConsumed, step - 1);
    co_await flow.until(consumed);
  }
  reduction.packer.read(segment.small(group.local_index(), step).payload, reduction.count);
  group.post_small(step);
  if (across && !group.is_leader()) {
    OneReached shared(group, 0, kShared, step + 1);
    co_await flow.until(shared);
    reduction.unpacker.write(segment.result(step), reduction.count);
  } else {
    SmallArrived arrived(group, step);
    co_await flow.until(arrived);
    std::byte* result = across ? segment.result(step) : group.small_result();
    reduce_small(group, reduction, step, result);
    if (across) {
      co_await exchange_small(flow, group, reduction, result);
      group.post(kShared, step + 1);
    }
    reduction.unpacker.write(result, reduction.count);
  }
  // Whoever posted this step had ended the one before.
  group.known_consumed = step;
  group.post_all(kConsumed, step + 1);
}

// One allreduce in chunks; its functions are the stages that a chunk goes through.
class Stream {
 public:
  Stream(Group& group, Reduction& reduction)
      : group_(group), segment_(group.segment()), reduction_(reduction) {
    per_chunk_ = segment_.chunk() / reduction_.element;
    chunks_ = (reduction_.count + per_chunk_ - 1) / per_chunk_;
    first_ = group_.take_steps(chunks_);
  }
  Group& group() { return group_; }
  size_t chunks() const { return chunks_; }
  uint64_t step_of(size_t chunk) const { return first_ + chunk; }
  size_t count_of(size_t chunk) const {
    return std::min(per_chunk_, reduction_.count - chunk * per_chunk_);
  }

  void pack(size_t chunk) {
    const uint64_t step = step_of(chunk);
    reduction_.packer.read(segment_.slot(group_.local_index(), step), count_of(chunk));
    group_.post_all(kArrived, step + 1);
  }
  void reduce_slice(size_t chunk) {
    const uint64_t step = step_of(chunk);
    const size_t count = group_.local_count();
    const Slice slice =
        slice_of(count_of(chunk), count, group_.local_index(), reduction_.element);
    if (slice.count > 0) {
      const size_t offset = slice.first * reduction_.element;
      const void* inputs[kMaxLocalRanks];
      for (size_t i = 0; i < count; ++i) inputs[i] = segment_.slot(i, step) + offset;
      reduction_.reduce(segment_.result(step) + offset, inputs, count, slice.count,
                        reduction_.before,
                        group_.host_count() > 1 ? reduction_.none : reduction_.after);
    }
    group_.post_all(kReduced, step + 1);
  }
  void unpack(size_t chunk) {
    const uint64_t step = step_of(chunk);
    reduction_.unpacker.write(segment_.result(step), count_of(chunk));
    group_.post_all(kConsumed, step + 1);
  }

  // The leaders' part: the other hosts' parts of this chunk's slice, and the outcome of the chunk
  // before, in one exchange. Either may be missing, at the start and at the end.
  void add_transfers(Exchange& exchange, size_t chunk) {
    for (size_t host = 0; host < group_.host_count(); ++host) {
      if (host == group_.host_index()) continue;
      Lane& lane = group_.lane(host);
      if (chunk < chunks_) {
        const Slice theirs = host_slice(chunk, host);
        exchange.send(lane, at(chunk, theirs.first), theirs.count * reduction_.element);
        exchange.receive(lane, received_from(host),
                         host_slice(chunk, group_.host_index()).count * reduction_.element);
      }
      if (chunk > 0) {
        const Slice mine = host_slice(chunk - 1, group_.host_index());
        const Slice theirs = host_slice(chunk - 1, host);
        exchange.send(lane, at(chunk - 1, mine.first), mine.count * reduction_.element);
        exchange.receive(lane, at(chunk - 1, theirs.first), theirs.count * reduction_.element);
      }
    }
  }
  void reduce_own(size_t chunk) {
    const Slice mine = host_slice(chunk, group_.host_index());
    if (mine.count == 0) return;
    reduce_hosts(group_, reduction_, at(chunk, mine.first), received(), stride(),
                 mine.count);
  }

 private:
  Slice host_slice(size_t chunk, size_t host) const {
    return slice_of(count_of(chunk), group_.host_count(), host, reduction_.element);
  }
  std::byte* at(size_t chunk, size_t element) const {
    return segment_.result(step_of(chunk)) + element * reduction_.element;
  }
  size_t stride() const {
    return slice_of(per_chunk_, group_.host_count(), 0, reduction_.element).count *
           reduction_.element;
  }
  std::byte* received() { return group_.scratch(stride() * (group_.host_count() - 1)); }
  std::byte* received_from(size_t host) {
    return received() + stride() * (host < group_.host_index() ? host : host - 1);
  }

  Group& group_;
  const Segment& segment_;
  Reduction& reduction_;
  size_t per_chunk_;
  size_t chunks_;
  uint64_t first_;
};

// Packs the next chunk, then reduces this rank's slice of this one.
Job reduce_chunk(Flow& flow, Stream& stream, size_t chunk) {
  Group& group = stream.group();
  if (chunk + 1 < stream.chunks()) {
    // A slot is free when its last chunk has been reduced; one of another operation, when that
    // operation's step was consumed.
    const uint64_t step = stream.step_of(chunk + 1);
    AllReached is_free(group, chunk == 0 ? kConsumed : kReduced, step - 1);
    co_await flow.until(is_free);
    stream.pack(chunk + 1);
  }
  const uint64_t step = stream.step_of(chunk);
  AllReached arrived(group, kArrived, step + 1);
  co_await flow.until(arrived);
  if (step > 0) {
    AllReached consumed(group, kConsumed, step - 1);
    co_await flow.until(consumed);
  }
  stream.reduce_slice(chunk);
}

Job allreduce_on_host(Flow& flow, Group& group, Stream& stream) {
  for (size_t chunk = 0; chunk < stream.chunks(); ++chunk) {
    co_await reduce_chunk(flow, stream, chunk);
    AllReached reduced(group, kReduced, stream.step_of(chunk) + 1);
    co_await flow.until(reduced);
    stream.unpack(chunk);
  }
}

// A chunk comes back from the other hosts while the next one is reduced here.
Job allreduce_across(Flow& flow, Group& group, Stream& stream) {
  for (size_t chunk = 0; chunk <= stream.chunks(); ++chunk) {
    if (chunk < stream.chunks()) co_await reduce_chunk(flow, stream, chunk);
    if (group.is_leader()) {
      if (chunk < stream.chunks()) {
        AllReached reduced(group, kReduced, stream.step_of(chunk) + 1);
        co_await flow.until(reduced);
      }
      Exchange exchange;
      stream.add_transfers(exchange, chunk);
      co_await flow.until(exchange);
      if (chunk > 0) group.post(kShared, stream.step_of(chunk - 1) + 1);
      if (chunk < stream.chunks()) stream.reduce_own(chunk);
    } else if (chunk > 0) {
      OneReached shared(group, 0, kShared, stream.step_of(chunk - 1) + 1);
      co_await flow.until(shared);
    }
    if (chunk > 0) stream.unpack(chunk - 1);
  }
}

}  // namespace

Job allreduce(Flow& flow, Group& group, const hvd_batch& batch) {
  Reduction reduction(batch, group.size(), group.index());
  if (reduction.count == 0) co_return;
  if (group.size() == 1) {
    reduce_alone(batch, reduction);
    co_return;
  }
  if (reduction.count * reduction.element <= kSmallBytes) {
    co_await allreduce_small(flow, group, reduction);
    co_return;
  }
  Stream stream(group, reduction);
  if (stream.step_of(0) > 0) {
    AllReached consumed(group, kConsumed, stream.step_of(0) - 1);
    co_await flow.until(consumed);
  }
  stream.pack(0);
  if (group.host_count() == 1) {
    co_await allreduce_on_host(flow, group, stream);
  } else {
    co_await allreduce_across(flow, group, stream);
  }
}

Job reduce_scatter(Flow& flow, Group& group, const hvd_batch& batch) {
  // The unpacker keeps this member's rows.
  co_await allreduce(flow, group, batch);
}

}  // namespace hvd::collectives
