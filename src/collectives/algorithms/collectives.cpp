#include "collectives/algorithms/collectives.h"

#include "base/dtype.h"
#include "collectives/kernels/reduce_kernels.h"

namespace hvd::collectives {

bool can_run(const hvd_batch& batch) {
  if (batch.device != HVD_CPU || (!is_dtype(batch.dtype) && batch.op != HVD_BARRIER)) return false;
  switch (batch.op) {
    case HVD_ALLREDUCE:
      if (batch.reduce_op == HVD_ADASUM) return adasum_knows(static_cast<hvd_dtype>(batch.dtype));
      [[fallthrough]];
    case HVD_REDUCESCATTER:
      return reduce_function(static_cast<hvd_dtype>(batch.dtype),
                             static_cast<hvd_reduce_op>(batch.reduce_op)) != nullptr;
    case HVD_ALLGATHER:
    case HVD_BROADCAST:
    case HVD_ALLTOALL:
    case HVD_BARRIER:
      return true;
    default:
      return false;
  }
}

Coroutine barrier(Flow& flow, Group& group) {
  uint8_t nothing = 0;
  SmallAllreduce everybody(HVD_SUM, HVD_UINT8, &nothing, 1);
  co_await allreduce(flow, group, everybody.batch());
}

Coroutine run(Flow& flow, Group& group, const hvd_batch& batch) {
  SubRegionOpen open(group);
  co_await flow.until(open);
  switch (batch.op) {
    case HVD_ALLREDUCE:
      if (batch.reduce_op == HVD_ADASUM)
        co_await adasum(flow, group, batch);
      else
        co_await allreduce(flow, group, batch);
      break;
    case HVD_REDUCESCATTER:
      co_await reduce_scatter(flow, group, batch);
      break;
    case HVD_ALLGATHER:
      co_await allgather(flow, group, batch);
      break;
    case HVD_BROADCAST:
      co_await broadcast(flow, group, batch);
      break;
    case HVD_ALLTOALL:
      co_await alltoall(flow, group, batch);
      break;
    default:
      co_await barrier(flow, group);
      break;
  }
}

}  // namespace hvd::collectives
