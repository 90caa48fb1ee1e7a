"""Collectives on MXNet's arrays.

Rules for all of them:

* Every rank must make the same call under the same name. Unnamed calls are named by their order, so all
  ranks must then make them in the same order.
* Arrays are dense, in host memory or on a GPU, of type uint8, int8, int32, int64, float16, bfloat16, float32, float64
  or bool.
* allreduce, broadcast, and their in-place and group forms return at once. MXNet's engine orders them with all
  operations that read or write the arrays, and a read waits for them. A call waits for an earlier call of the same
  name. A call also waits for its own result in these cases: arrays of a group share memory; MXNet uses NaiveEngine; or
  an array is on a GPU, and travels through host memory.
* The other collectives wait for MXNet's pending work on the arrays, and return with the result.
* The forms that end in `_` write into their arguments. `priority` is for existing scripts.
* MXNet records no call for gradients.
* ValueError: a bad argument, a name that is in flight, or ranks that disagree (every rank gets it, and
  Horovod stays usable). HorovodInternalError: a rank died or shut down, or Horovod is not initialised.
* A call that returned at once raises errors other than bad arguments as MXNetError where a result is read.
  After the loss of a rank, later calls raise HorovodInternalError too.
* `hvd.shutdown()` and the end of a program wait for calls that returned at once, but abandon calls that wait for
  other ranks when no call has completed for HOROVOD_STALL_CHECK_TIME_SECONDS (60; 0: never).
"""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Optional, Sequence, Union

import numpy

from horovod import _frontend, _ops
from horovod._frontend import ReduceOp, choose_op, group_base
from horovod._identity import is_initialized
from horovod._ops import Average, Dtype, Kind
from horovod.mxnet import _arrays, _engine
from horovod.exceptions import HorovodArgumentError
from horovod.process_sets import ProcessSet, global_process_set, id_of

__all__ = [
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "reducescatter",
]

Array = Any  # mxnet.nd.NDArray
_FLOATS = {Dtype.FLOAT16, Dtype.BFLOAT16, Dtype.FLOAT32, Dtype.FLOAT64}


def allreduce_async(
    tensors: Sequence[Array],
    in_place: bool,
    name: Optional[str],
    op: ReduceOp,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    base: Optional[str] = None,
    arrays: Any = _arrays,
) -> int:
    """Starts an allreduce of one array, or of a group with the name `base`; returns a handle."""
    tensors, in_place = _arrays.receivers(tensors, in_place)
    submit = functools.partial(_frontend.elementwise, arrays)
    return _frontend.allreduce(
        submit, tensors, in_place, op, name, prescale_factor, postscale_factor, process_set, base
    )


def _is_sendable(
    kind: Kind, tensors: Sequence[Array], process_set: ProcessSet, number: Any, factors: Sequence[Any] = ()
) -> bool:
    """Returns whether this rank finds no error in a collective. `number`: its op or root."""
    if (
        not is_initialized()
        or not isinstance(number, int)
        or (process_set is not global_process_set and not process_set.included())
    ):
        return False
    if kind == Kind.BROADCAST:
        return number in (process_set.ranks or ())
    dtypes = {_arrays.number_of(tensor) for tensor in tensors}
    return all(isinstance(factor, (int, float)) and factor for factor in factors) and (
        number in (_ops.Sum, _ops.Min, _ops.Max, _ops.Product)
        or number == Average
        and Dtype.BOOL not in dtypes
        or number == _ops.Adasum
        and dtypes <= _FLOATS
    )


def _collect(
    name: str, tensors: Sequence[Array], in_place: bool, is_sendable: bool, start: Callable[[Any], int]
) -> List[Array]:
    """Calls `start` with a module of array functions when the arrays are computed, and returns the results. Returns at
    once if MXNet's engine orders the call and the caller does not need an error here."""
    if not is_sendable or not _engine.can_order(tensors):
        _engine.wait_for(name)
        results = _ops.run(start(_arrays))
        return list(results) if isinstance(results, tuple) else [results]
    outputs = tensors if in_place else [_arrays.empty_like(tensor) for tensor in tensors]
    _engine.collect(tensors, outputs, lambda: start(_engine.Computed(outputs)), name)
    return list(outputs)


def _allreduce(
    tensors: Sequence[Array],
    in_place: bool,
    name: Optional[str],
    op: ReduceOp,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    base: Optional[str] = None,
) -> List[Array]:
    tensors = list(tensors)  # the caller may change its list before the collective starts
    number = id_of(process_set)
    if base is None:
        full = _ops.full_name("allreduce", name, number)
        name = full.partition(".")[2]  # count the call here, in the order of the program's calls
    else:
        full = f"grouped_allreduce.{base}"
    for tensor in tensors:
        _arrays.check(tensor, full)

    def start(arrays: Any) -> int:
        return allreduce_async(
            tensors, in_place, name, op, prescale_factor, postscale_factor, process_set, base, arrays
        )

    return _collect(
        f"{number}.{full}",
        tensors,
        in_place,
        _is_sendable(Kind.ALLREDUCE, tensors, process_set, op, (prescale_factor, postscale_factor)),
        start,
    )


def allreduce(
    tensor: Array,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Optional[ReduceOp] = None,
) -> Array:
    """Returns the array reduced over all ranks, element by element; does not change `tensor`.

    `tensor`: any shape, the same shape and dtype on all ranks. `op`: Average (the default), Sum, Min, Max, Product or
    Adasum; an average of integers is cut towards zero (its sum wraps around only in 64 bits), and a NaN of any rank is
    the result. Inputs are multiplied by `prescale_factor` and results by `postscale_factor`, neither of which may be 0.
    `average` is the deprecated argument for Average or Sum.
    """
    return _allreduce([tensor], False, name, choose_op(average, op), prescale_factor, postscale_factor, process_set)[0]


def allreduce_(
    tensor: Array,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Optional[ReduceOp] = None,
) -> Array:
    """Like `allreduce`, in place: returns `tensor` with its new values."""
    return _allreduce([tensor], True, name, choose_op(average, op), prescale_factor, postscale_factor, process_set)[0]


def grouped_allreduce(
    tensors: Sequence[Array],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Optional[ReduceOp] = None,
) -> List[Array]:
    """Reduces several arrays as one request, each as `allreduce`. The request starts when all arrays are ready on all
    ranks. Returns the list of results."""
    base = group_base("grouped_allreduce", tensors, name, process_set)
    return _allreduce(
        tensors, False, None, choose_op(average, op), prescale_factor, postscale_factor, process_set, base
    )


def grouped_allreduce_(
    tensors: Sequence[Array],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Optional[ReduceOp] = None,
) -> List[Array]:
    """Like `grouped_allreduce`, in place: returns the arrays with their new values."""
    base = group_base("grouped_allreduce", tensors, name, process_set)
    return _allreduce(tensors, True, None, choose_op(average, op), prescale_factor, postscale_factor, process_set, base)


def broadcast_async(
    tensor: Array, in_place: bool, root_rank: int, name: Optional[str], process_set: ProcessSet, arrays: Any = _arrays
) -> int:
    """Starts a broadcast and returns a handle."""
    number = id_of(process_set)
    tensors, in_place = _arrays.receivers([tensor], in_place)
    return _frontend.elementwise(
        arrays,
        Kind.BROADCAST,
        _ops.full_name("broadcast", name, number),
        tensors,
        in_place,
        root_rank=root_rank,
        process_set=number,
    )


def _broadcast(tensor: Array, in_place: bool, root_rank: int, name: Optional[str], process_set: ProcessSet) -> Array:
    number = id_of(process_set)
    full = _ops.full_name("broadcast", name, number)
    _arrays.check(tensor, full)

    def start(arrays: Any) -> int:
        return broadcast_async(tensor, in_place, root_rank, full.partition(".")[2], process_set, arrays)

    return _collect(
        f"{number}.{full}", [tensor], in_place, _is_sendable(Kind.BROADCAST, [tensor], process_set, root_rank), start
    )[0]


def broadcast(
    tensor: Array,
    root_rank: int,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Returns the array of the rank `root_rank` on every rank.

    `tensor`: any shape, the same shape and dtype on all ranks. `root_rank` is a rank of the job, even with a process
    set.
    """
    return _broadcast(tensor, False, root_rank, name, process_set)


def broadcast_(
    tensor: Array,
    root_rank: int,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Like `broadcast`, in place: returns `tensor` with the root's values."""
    return _broadcast(tensor, True, root_rank, name, process_set)


def _rows(
    kind: Kind,
    tensors: Sequence[Array],
    name: Optional[str],
    process_set: ProcessSet,
    grouped: bool,
    **arguments: Any,
) -> Any:
    submit = functools.partial(_frontend.rows, _arrays)
    result = _ops.run(_frontend.named_rows(submit, kind, tensors, name, process_set, grouped, **arguments))
    if grouped:
        return _arrays.returned(result, tensors)
    if "with_splits" in arguments:
        return _arrays.returned(result[:1], tensors)[0], result[1]
    return _arrays.returned([result], tensors)[0]


def allgather(
    tensor: Array, name: Optional[str] = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Array:
    """Returns the arrays of all ranks, concatenated along the first dimension in rank order.

    `tensor`: at least one dimension; the first may differ between ranks, the others and the dtype must
    agree.
    """
    return _rows(Kind.ALLGATHER, [tensor], name, process_set, False)


def grouped_allgather(
    tensors: Sequence[Array],
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> List[Array]:
    """Gathers several arrays as one request; each as `allgather`."""
    return list(_rows(Kind.ALLGATHER, tensors, name, process_set, True))


def alltoall(
    tensor: Array,
    splits: Optional[Union[Array, Sequence[int]]] = None,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows of `tensor` to every rank, and returns the rows received, in rank order.

    `tensor`: at least one dimension; the first may differ between ranks. `splits`: how many rows go to
    each rank, as an int32 array or a list; None sends equal parts. Returns the array alone without `splits`,
    else the pair of it and the int32 array of rows received from each rank.
    """
    given: Any = [] if splits is None else splits
    if hasattr(given, "asnumpy"):
        if numpy.dtype(given.dtype) != numpy.int32:
            raise HorovodArgumentError(
                f"alltoall: splits is an array of type {numpy.dtype(given.dtype)}; "
                "give int32, as with .astype('int32')."
            )
        given = given.asnumpy()
    numbers = numpy.asarray(given).tolist()
    if not isinstance(numbers, list) or not all(
        isinstance(each, (int, float)) and int(each) == each for each in numbers
    ):
        raise HorovodArgumentError(f"alltoall: splits is {splits!r}; give whole numbers, one for each rank.")
    output, received = _rows(
        Kind.ALLTOALL, [tensor], name, process_set, False, with_splits=True, splits=[int(each) for each in numbers]
    )
    return output if splits is None else (output, received)


def reducescatter(
    tensor: Array,
    op: ReduceOp = Average,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Array:
    """Reduces as `allreduce` does, and returns this rank's share of the rows.

    `tensor`: at least one dimension, the same shape and dtype on all ranks; where the rows do not
    divide evenly, the first ranks get one more. `op`: Average or Sum.
    """
    return _rows(
        Kind.REDUCESCATTER,
        [tensor],
        name,
        process_set,
        False,
        reduce_op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
    )


def grouped_reducescatter(
    tensors: Sequence[Array],
    op: ReduceOp = Average,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[Array]:
    """Reduces and scatters several arrays as one request; each as `reducescatter`."""
    return list(
        _rows(
            Kind.REDUCESCATTER,
            tensors,
            name,
            process_set,
            True,
            reduce_op=op,
            prescale=prescale_factor,
            postscale=postscale_factor,
        )
    )
