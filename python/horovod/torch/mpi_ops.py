"""Collectives on torch tensors. Scripts import this module by this name; it does not need MPI.

Rules for all of them:

* Every rank must make the same call under the same name. Unnamed calls are named by their order,
  so all ranks must then make them in the same order.
* Tensors lie in host memory or on a GPU, in any layout of strides, of type uint8, int8, int16, int32, int64, float16,
  bfloat16, float32, float64, bool, complex64 or complex128 (and uint16, uint32, uint64 where torch has them). Complex
  numbers travel as pairs of reals: Sum and Average reduce them, and Min, Max, Product and Adasum are refused. The
  gradients of complex numbers follow torch's convention.
* The `_async` forms return a handle for `poll` and `synchronize` at once; do not change the tensors until the work is
  complete. The forms that end in `_` write into their argument.
* `send` and `recv` concern two ranks alone: rank, tag and process set match them, and they have no name.
* Forms that return a new tensor pass gradients on; the `_async` and in-place forms do not.
* ValueError: a bad argument, a name that is in flight, or ranks that disagree (every rank gets
  it, and Horovod stays usable). HorovodInternalError: a rank died or shut down, or Horovod is
  not initialised. NotImplementedError: not in this build.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from horovod import _basics as _basics, _native
from horovod._basics import *
from horovod._frontend import ReduceOp, barrier, choose_op, join, poll
from horovod._observation import start_timeline, stop_timeline
from horovod._ops import Adasum, Average, Max, Min, Product, Sum
from horovod.common.util import gpu_available as gpu_available, num_rank_is_power_2 as num_rank_is_power_2
from horovod.exceptions import HorovodInternalError
from horovod.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.torch import _allreduce, _broadcast, _rows
from horovod.torch._allreduce import *
from horovod.torch._allreduce import (
    HorovodAllreduce as HorovodAllreduce,
    HorovodGroupedAllreduce as HorovodGroupedAllreduce,
)
from horovod.torch._broadcast import *
from horovod.torch._broadcast import HorovodBroadcast as HorovodBroadcast
from horovod.torch._messages import recv, recv_async, send, send_async
from horovod.torch._rows import *
from horovod.torch._rows import (
    HorovodAllgather as HorovodAllgather,
    HorovodAlltoall as HorovodAlltoall,
    HorovodGroupedAllgather as HorovodGroupedAllgather,
    HorovodGroupedReducescatter as HorovodGroupedReducescatter,
    HorovodReducescatter as HorovodReducescatter,
)
from horovod.torch.compression import Compression as Compression

__all__ = [
    "Adasum",
    "Average",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "barrier",
    "global_process_set",
    "join",
    "poll",
    "recv",
    "recv_async",
    "remove_process_set",
    "send",
    "send_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
__all__ += _basics.__all__
__all__ += _allreduce.__all__
__all__ += _broadcast.__all__
__all__ += _rows.__all__

# Waits until the work is complete and returns its result.
synchronize: Callable[[int], Any] = _native.synchronize


def handle_average_backwards_compatibility(op: Optional[ReduceOp], average: Optional[bool]) -> ReduceOp:
    """Returns `op`, or the reduction that the deprecated argument `average` chooses. Raises ValueError for both."""
    return choose_op(average, op)
