"""Collectives on numpy arrays.

Rules for all of them:

* Every rank must make the same call under the same name. Unnamed calls are named by their order,
  so all ranks must then make them in the same order.
* Arrays have any strides, and type uint8 to uint64, int8 to int64, float16, float32, float64, bool, complex64,
  complex128 (reduced by Sum and Average only), or the bfloat16 of ml_dtypes. Where a result is a new array, an argument
  may also be any value that `numpy.asarray` accepts, such as a number, except a masked array.
* The `_async` forms return a handle for `poll` and `synchronize` at once; do not change the arrays until the work is
  complete. The forms that end in `_` write into their argument.
* ValueError: a bad argument, a name that is in flight, or ranks that disagree (every rank gets
  it, and Horovod stays usable). HorovodInternalError: a rank died or shut down, or Horovod is
  not initialised.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union, overload

import numpy
from numpy import ndarray as Array

from horovod import _frontend, _native, _ops
from horovod._frontend import ReduceOp, group_base
from horovod._ops import Average, Kind
from horovod.numpy import _arrays
from horovod.process_sets import ProcessSet, global_process_set

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_reducescatter",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
]

# By these values, the native module recognises an array that needs no copy.
_PLAIN: Tuple[Any, ...] = (numpy.ndarray, {}, None)
_submit = functools.partial(_frontend.elementwise, _arrays)
_allreduce = functools.partial(_frontend.allreduce, _submit)
_broadcast = functools.partial(_frontend.broadcast, _submit)


def _submit_rows(kind: Kind, name: str, tensors: Sequence[Any], *more: Any, **arguments: Any) -> int:
    arrays = [_arrays.to_array(tensor) for tensor in tensors]
    return _frontend.rows(_arrays, kind, name, arrays, *more, **arguments)


_rows = functools.partial(_frontend.named_rows, _submit_rows)

# Waits until the work is complete and returns its result.
synchronize: Callable[[int], Any] = _native.synchronize


def _check_writable(array: Array, what: str) -> None:
    _arrays.check(array, what)
    if not array.flags.writeable:
        raise ValueError(f"{what}: the array is read-only, so no result can be written into it.")


def allreduce_async(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce` and returns a handle."""
    return _allreduce(
        [_arrays.to_array(tensor)],
        False,
        _frontend.choose_op(average, op),
        name,
        prescale_factor,
        postscale_factor,
        process_set,
    )


@_frontend.fast_path("allreduce.", _PLAIN)
def allreduce_async_(
    tensor: Array,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce_` and returns a handle."""
    _check_writable(tensor, name or "allreduce_")
    return _allreduce(
        [tensor], True, _frontend.choose_op(average, op), name, prescale_factor, postscale_factor, process_set
    )


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Returns the array reduced over all ranks, element by element. Does not change `tensor`.

    `tensor`: any shape, the same shape and dtype on all ranks. `op`: Average (the default), Sum, Min,
    Max, Product or Adasum; an average of integers is truncated towards zero (its sum wraps
    around only in 64 bits), and a NaN of any rank is the result. `prescale_factor` multiplies
    the inputs and `postscale_factor` the results; neither may be 0. `average` is the
    deprecated argument for Average or Sum. Complex numbers are reduced by Sum and Average only.
    """
    return _ops.run(
        allreduce_async(
            tensor, None, name, _frontend.choose_op(average, op), prescale_factor, postscale_factor, process_set
        )
    )


@_frontend.fast_path("allreduce.", _PLAIN, waits=True)
def allreduce_(
    tensor: Array,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Like `allreduce`, in place. Returns `tensor` with its new values."""
    return _ops.run(
        allreduce_async_(
            tensor, None, name, _frontend.choose_op(average, op), prescale_factor, postscale_factor, process_set
        )
    )


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tuple[Array, ...]:
    """Reduces several arrays as one request. The reduction starts when all ranks have submitted all of
    them."""
    return _ops.run(
        grouped_allreduce_async(
            tensors, None, name, _frontend.choose_op(average, op), prescale_factor, postscale_factor, process_set
        )
    )


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce` and returns one handle for the group."""
    base = group_base("grouped_allreduce", tensors, name, process_set)
    return _allreduce(
        [_arrays.to_array(tensor) for tensor in tensors],
        False,
        _frontend.choose_op(average, op),
        None,
        prescale_factor,
        postscale_factor,
        process_set,
        base,
    )


def broadcast_async(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `broadcast` and returns a handle."""
    return _broadcast(_arrays.to_array(tensor), False, root_rank, name, process_set)


def broadcast_async_(
    tensor: Array, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `broadcast_` and returns a handle."""
    _check_writable(tensor, name or "broadcast_")
    return _broadcast(tensor, True, root_rank, name, process_set)


def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Array:
    """Returns the array of the rank `root_rank` on every rank. Does not change `tensor`.

    `tensor`: any shape, the same shape and dtype on all ranks. `root_rank` is a rank of the job.
    """
    return _ops.run(broadcast_async(tensor, root_rank, name, process_set))


def broadcast_(
    tensor: Array, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Array:
    """Like `broadcast`, in place. Returns `tensor` with the root's values."""
    return _ops.run(broadcast_async_(tensor, root_rank, name, process_set))


def allgather_async(tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> int:
    """Starts `allgather` and returns a handle."""
    return _rows(Kind.ALLGATHER, [tensor], name, process_set)


def allgather(tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Array:
    """Returns the arrays of all ranks, concatenated along the first dimension in rank order.

    `tensor`: at least one dimension. The first dimension may differ between ranks, and be 0. The other
    dimensions and the dtype must agree.
    """
    return _ops.run(allgather_async(tensor, name, process_set))


def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Tuple[Array, ...]:
    """Gathers several arrays as one request; each as `allgather`."""
    return _ops.run(_rows(Kind.ALLGATHER, tensors, name, process_set, True))


def alltoall_async(
    tensor: Any,
    splits: Optional[Sequence[int]] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `alltoall` and returns a handle; the result is the pair (array, received splits)."""
    numbers: List[int] = []
    if splits is not None:
        given = numpy.asarray(splits)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise ValueError("alltoall: splits must be one-dimensional and of whole numbers.")
        numbers = given.tolist()
    return _rows(Kind.ALLTOALL, [tensor], name, process_set, with_splits=True, splits=numbers)


@overload
def alltoall(
    tensor: Any, splits: None = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Array: ...


@overload
def alltoall(
    tensor: Any, splits: Sequence[int], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Tuple[Array, Array]: ...


def alltoall(
    tensor: Any,
    splits: Optional[Sequence[int]] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Union[Array, Tuple[Array, Array]]:
    """Sends rows of `tensor` to every rank, and returns the received rows in rank order.

    `tensor`: at least one dimension; the first may differ between ranks. `splits`: the number of rows
    for each rank; None sends equal parts. Returns the array without `splits`, else the pair of it and
    the int32 array with the number of rows from each rank.
    """
    output, received = _ops.run(alltoall_async(tensor, splits, name, process_set))
    return output if splits is None else (output, received)


def reducescatter_async(
    tensor: Any,
    name: Optional[str] = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts `reducescatter` and returns a handle."""
    return _rows(
        Kind.REDUCESCATTER,
        [tensor],
        name,
        process_set,
        reduce_op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
    )


def reducescatter(
    tensor: Any,
    name: Optional[str] = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Array:
    """Reduces as `allreduce` does, and returns this rank's share of the rows.

    `tensor`: at least one dimension, the same shape and dtype on all ranks. If the rows do not divide
    evenly, the first ranks get one more. `op`: Average or Sum.
    """
    return _ops.run(reducescatter_async(tensor, name, op, process_set, prescale_factor, postscale_factor))


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tuple[Array, ...]:
    """Reduces and scatters several arrays as one request; each as `reducescatter`."""
    return _ops.run(
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
