// The leaders go on with what their host has reduced: each owns a slice, gets the others' parts of
// it, reduces them in the order of the hosts and sends the outcome back. A sum in half precision
// is thus rounded once per host and once at the end, whatever the number of ranks.
#include "collectives/allreduce_across.h"

#include <vector>

#include "collectives/host_stages.h"

namespace hvd::collectives {
namespace {

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

Job small_across(Flow& flow, Group& group, Reduction& reduction) {
  const uint64_t step = group.take_steps(1);
  co_await pack_small(flow, group, reduction, step);
  std::byte* result = group.segment().result(step);
  if (group.is_leader()) {
    SmallArrived arrived(group, step);
    co_await flow.until(arrived);
    reduce_small(group, reduction, step, result);
    co_await exchange_small(flow, group, reduction, result);
    group.post(kShared, step + 1);
  } else {
    OneReached shared(group, 0, kShared, step + 1);
    co_await flow.until(shared);
  }
  reduction.unpacker.write(result, reduction.count);
  end_small(group, step);
}

// The leaders' part of an allreduce in chunks.
class LeaderStream {
 public:
  LeaderStream(Group& group, Reduction& reduction)
      : on_host(group, reduction), group_(group), reduction_(reduction) {}

  HostStream on_host;

  Group& group() { return group_; }
  // The leaders' part: the other hosts' parts of this chunk's slice, and the outcome of the chunk
  // before, in one exchange. Either may be missing, at the start and at the end.
  void add_transfers(Exchange& exchange, size_t chunk) {
    for (size_t host = 0; host < group_.host_count(); ++host) {
      if (host == group_.host_index()) continue;
      Lane& lane = group_.lane(host);
      if (chunk < on_host.chunks()) {
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
    return slice_of(on_host.count_of(chunk), group_.host_count(), host, reduction_.element);
  }
  std::byte* at(size_t chunk, size_t element) const {
    return group_.segment().result(on_host.step_of(chunk)) + element * reduction_.element;
  }
  size_t stride() const {
    return slice_of(on_host.per_chunk(), group_.host_count(), 0, reduction_.element).count *
           reduction_.element;
  }
  std::byte* received() { return group_.scratch(stride() * (group_.host_count() - 1)); }
  std::byte* received_from(size_t host) {
    return received() + stride() * (host < group_.host_index() ? host : host - 1);
  }

  Group& group_;
  Reduction& reduction_;
};

// A chunk comes back from the other hosts while the next one is reduced here.
Job stream_across(Flow& flow, Group& group, LeaderStream& stream) {
  for (size_t chunk = 0; chunk <= stream.on_host.chunks(); ++chunk) {
    if (chunk < stream.on_host.chunks()) co_await reduce_chunk(flow, stream.on_host, chunk);
    if (group.is_leader()) {
      if (chunk < stream.on_host.chunks()) {
        AllReached reduced(group, kReduced, stream.on_host.step_of(chunk) + 1);
        co_await flow.until(reduced);
      }
      Exchange exchange;
      stream.add_transfers(exchange, chunk);
      co_await flow.until(exchange);
      if (chunk > 0) group.post(kShared, stream.on_host.step_of(chunk - 1) + 1);
      if (chunk < stream.on_host.chunks()) stream.reduce_own(chunk);
    } else if (chunk > 0) {
      OneReached shared(group, 0, kShared, stream.on_host.step_of(chunk - 1) + 1);
      co_await flow.until(shared);
    }
    if (chunk > 0) stream.on_host.unpack(chunk - 1);
  }
}

}  // namespace

Job allreduce_across(Flow& flow, Group& group, Reduction& reduction) {
  if (reduction.count * reduction.element <= kSmallBytes) {
    co_await small_across(flow, group, reduction);
    co_return;
  }
  LeaderStream stream(group, reduction);
  if (stream.on_host.step_of(0) > 0) {
    AllReached consumed(group, kConsumed, stream.on_host.step_of(0) - 1);
    co_await flow.until(consumed);
  }
  stream.on_host.pack(0);
  co_await stream_across(flow, group, stream);
}

}  // namespace hvd::collectives
