// Streams a payload through the members' slots step by step: each member packs its own data, the
// leaders exchange what other hosts need, and each member unpacks what it needs.
#pragma once

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"

namespace hvd::collectives {

// `Work` has first() and steps(), the range of steps that Group::take_steps reserved. For each step
// the function calls pack(index), which posts kArrived, add_transfers(transfers, index), and
// unpack(index), which posts kConsumed.
template <typename Work>
Coroutine stream_steps(Flow& flow, Group& group, Work& work) {
  for (size_t i = 0; i < work.steps(); ++i) {
    const uint64_t step = work.first() + i;
    AllReached is_free = buffers_free(group, step);
    co_await flow.until(is_free);
    work.pack(i);
    if (group.host_count() == 1 || group.is_leader()) {
      AllReached arrived(group, kArrived, step + 1);
      co_await flow.until(arrived);
    }
    if (group.host_count() > 1 && group.is_leader()) {
      ConcurrentTransfers transfers;
      work.add_transfers(transfers, i);
      co_await flow.until(transfers);
      group.post(kShared, step + 1);
    } else if (group.host_count() > 1) {
      OneReached shared(group, 0, kShared, step + 1);
      co_await flow.until(shared);
    }
    work.unpack(i);
  }
}

}  // namespace hvd::collectives
