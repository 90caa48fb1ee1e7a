"""Collectives on tensors of TensorFlow, under the name that scripts import; no MPI is needed."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from horovod import _common
from horovod._basics import *
from horovod._common import *
from horovod._frontend import ReduceOp, choose_op
from horovod._ops import Sum
from horovod.common.util import gpu_available, num_rank_is_power_2  # noqa: F401
from horovod.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import _collectives
from horovod.tensorflow._collectives import *
from horovod.tensorflow._nodes import _alltoall_gradient as _alltoall_grad  # noqa: F401, for users
from horovod.tensorflow.functions import allgather_object, broadcast_object  # noqa: F401
from horovod.tensorflow.util import _executing_eagerly  # noqa: F401

__all__ = [
    "check_num_rank_power_of_2",
    "handle_average_backwards_compatibility",
]
__all__ += _common.__all__
__all__ += _collectives.__all__

check_num_rank_power_of_2 = num_rank_is_power_2


def handle_average_backwards_compatibility(op: Optional[ReduceOp], average: Optional[bool]) -> ReduceOp:
    """Returns the reduction that a call's `op`, or its deprecated `average`, selects."""
    return choose_op(average, op)


def _allreduce(
    tensor: Any,
    name: Optional[str] = None,
    op: ReduceOp = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Calls `allreduce`. Has the order of arguments that some scripts use; the default reduction is Sum."""
    return _collectives.allreduce(
        tensor,
        name=name,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set=process_set,
    )


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: ReduceOp = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """Calls `grouped_allreduce`. Has the order of arguments and the default of `_allreduce`."""
    return _collectives.grouped_allreduce(
        tensors,
        name=name,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set=process_set,
    )
