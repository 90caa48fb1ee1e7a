"""Collectives on tensors of TensorFlow: eagerly, in `tf.function` and in graphs of TensorFlow 1.

Rules for all of them:

* Every rank must make the same call under the same name. Eager calls without a name are numbered in the order of the
  calls, so all ranks must make them in the same order. In graphs, the default is the name of the tensor, and the order
  does not matter. If the graph already contains the name, or for another gradient of the same operation, a number is
  added: all ranks must create such operations in the same order. Inside nested functions, the calls that lead to the
  operation come before the name.
* Types: uint8 to uint64, int8 to int64, float16, bfloat16, float32, float64, bool, and complex64 and complex128, which
  only Sum and Average reduce; else ValueError. Tensors travel through host memory.
* Every collective is differentiable. The gradient is again a collective, so every rank must compute it.
* `tf.vectorized_map`, and `jacobian` of a tape, send one allreduce or broadcast request for all iterations.
  For other collectives and for Adasum, these functions raise NotImplementedError.
* In a graph of TensorFlow 1 the iterations of a loop (`tf.while_loop`, `tf.map_fn`, `tf.scan`, an RNN) may run at once:
  ranks match equal iterations. A function that `tf.data` calls several times at once (`num_parallel_calls`) has no such
  number, and must not contain a collective: tf.errors.InvalidArgumentError when the graph is built.
* In a graph, a thread of TensorFlow waits at most 10 ms for other ranks.
* ValueError, or tf.errors.InvalidArgumentError from an operation, for an invalid argument.
  tf.errors.FailedPreconditionError, on every rank, if ranks disagree; tf.errors.UnknownError when a rank died or shut
  down.
* `device_dense` and `device_sparse` are accepted for existing scripts.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import tensorflow as tf

from horovod._compression import check_compression
from horovod._frontend import ReduceOp, choose_op
from horovod._keras._frameworks import mark_allreduced
from horovod._ops import Average, Sum
from horovod.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import _nodes, _reduced
from horovod.tensorflow import _vectorized as _vectorized  # registers rules
from horovod.tensorflow.compression import Compression

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]


def _members(op: str, tensors: Any) -> List[tf.Tensor]:
    if not isinstance(tensors, (list, tuple)) or not tensors:
        raise ValueError(f"{op} takes a list or tuple of at least one tensor.")
    return [_nodes.to_tensor(tensor, op) for tensor in tensors]


def reduce_dense(
    tensors: Sequence[Any],
    name: Optional[str],
    compression: Any,
    op: ReduceOp,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    ignore_name_scope: bool = False,
    is_last: bool = False,
) -> List[tf.Tensor]:
    """Allreduces tensors as one request. `is_last`: see `_nodes.allreduce`."""
    number = _nodes.group_of(process_set)
    check_compression(compression)
    pairs = [compression.compress(tensor) for tensor in _members("allreduce", list(tensors))]
    sent = [pair[0] for pair in pairs]
    reduced = _nodes.allreduce(
        sent,
        _nodes.node_name("HorovodAllreduce", name, sent, ignore_name_scope),
        op,
        _nodes.bits_of(prescale_factor, "allreduce"),
        _nodes.bits_of(postscale_factor, "allreduce"),
        number,
        is_last,
        name,
    )
    return [compression.decompress(tensor, pair[1]) for tensor, pair in zip(reduced, pairs)]


def _allreduce_sparse(
    slices: tf.IndexedSlices,
    name: Optional[str],
    op: ReduceOp,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    ignore_name_scope: bool,
) -> tf.IndexedSlices:
    if op not in (Sum, Average):
        raise NotImplementedError(
            "tf.IndexedSlices are reduced with op=hvd.Sum or hvd.Average only; others need "
            "sparse_as_dense=True or tf.convert_to_tensor."
        )
    for each in (prescale_factor, postscale_factor):
        _nodes.bits_of(each, "allreduce")  # raises an error for an invalid factor
    factor = float(prescale_factor) * float(postscale_factor)
    values = allgather(slices.values, name and f"{name}.values", ignore_name_scope, process_set)
    indices = allgather(slices.indices, name and f"{name}.indices", ignore_name_scope, process_set)
    size = _nodes.number(2, _nodes.group_of(process_set)) if op == Average else None
    return tf.IndexedSlices(_scaled(values, factor, size), indices, slices.dense_shape)


def _scaled(values: tf.Tensor, factor: float, size: Optional[tf.Tensor]) -> tf.Tensor:
    """Returns values times `factor`, of the same type: integers are truncated towards zero. With `size`, also divides
    by `size`, and integers become floats, as with TensorFlow's `/`: float32 from 8 and 16 bits, else float64."""
    exact = values.dtype
    if exact.is_integer:
        exact = tf.float32 if size is not None and exact.size < 4 else tf.float64
    scaled = tf.cast(values, exact)
    if size is not None:
        scaled = scaled / tf.cast(size, exact)
    if factor != 1.0:
        scaled = scaled * tf.cast(factor, exact)
    return scaled if size is not None else tf.cast(scaled, values.dtype)


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Returns the tensor reduced over all ranks, element by element.

    `tensor`: the same shape and type on all ranks; or tf.IndexedSlices, whose rows of all ranks are
    gathered (only Sum and Average). `op`: Average (the default), Sum, Min, Max, Product, Adasum; an
    average of integers is truncated towards zero (its sum wraps around only in 64 bits), in tf.IndexedSlices it is
    float64, or float32 of integers of 8 and 16 bits; and a NaN of any rank is the result. `prescale_factor`
    multiplies the inputs and `postscale_factor` the results; neither may be 0.
    Complex numbers are reduced by Sum and Average only.
    """
    op = choose_op(average, op)
    _reduced.note()
    if isinstance(tensor, tf.IndexedSlices):
        return mark_allreduced(
            _allreduce_sparse(tensor, name, op, prescale_factor, postscale_factor, process_set, ignore_name_scope),
            process_set,
        )
    return mark_allreduced(
        reduce_dense(
            [tensor], name, compression, op, prescale_factor, postscale_factor, process_set, ignore_name_scope
        )[0],
        process_set,
    )


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: Optional[str] = None,
) -> List[Any]:
    """Reduces a list of tensors by `allreduce` as one request: the ranks reduce all of them or none. Separate requests
    reduce tf.IndexedSlices in the list. An empty list makes no request, and returns an empty list."""
    op = choose_op(average, op)
    _reduced.note()
    if not isinstance(tensors, (list, tuple)):
        raise ValueError("grouped_allreduce takes a list or tuple of tensors.")
    dense = [i for i, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
    results = list(tensors)
    if dense:
        reduced = reduce_dense(
            [tensors[i] for i in dense],
            name,
            compression,
            op,
            prescale_factor,
            postscale_factor,
            process_set,
            ignore_name_scope,
        )
        for i, tensor in zip(dense, reduced):
            results[i] = tensor
    for i, tensor in enumerate(tensors):
        if isinstance(tensor, tf.IndexedSlices):
            results[i] = _allreduce_sparse(
                tensor,
                name and f"{name}.{i}",
                op,
                prescale_factor,
                postscale_factor,
                process_set,
                ignore_name_scope,
            )
    return [mark_allreduced(result, process_set) for result in results]


def allgather(
    tensor: Any,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Returns the tensors of all ranks, concatenated along the first dimension in rank order.

    `tensor`: at least one dimension; the first may differ between ranks. The gradient is that of this
    rank's rows, averaged over the ranks.
    """
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> List[tf.Tensor]:
    """Gathers a list of tensors by `allgather` as one request."""
    number = _nodes.group_of(process_set)
    sent = _members("allgather", tensors)
    tensor_name = _nodes.node_name("HorovodAllgather", name, sent, ignore_name_scope)
    return _nodes.allgather(sent, tensor_name, number, name)


def grouped_broadcast(
    tensors: Sequence[Any],
    root_rank: int,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> List[tf.Tensor]:
    """Broadcasts a list of tensors by `broadcast` as one request."""
    number = _nodes.group_of(process_set)
    sent = _members("broadcast", tensors)
    tensor_name = _nodes.node_name("HorovodBroadcast", name, sent, ignore_name_scope)
    return _nodes.broadcast(sent, tensor_name, root_rank, number, name)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Returns the tensor of the rank `root_rank`, a rank of the job, on every rank.

    `tensor`: the same shape and type on all ranks. The root gets the gradient averaged over the ranks,
    and other ranks get zeros.
    """
    return grouped_broadcast([tensor], root_rank, name, ignore_name_scope, process_set)[0]


def broadcast_(
    variables: Sequence[tf.Variable],
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """Assigns to each variable its value on the rank `root_rank`; returns the variables, or in a
    graph of TensorFlow 1 the assignments to run."""
    values = grouped_broadcast(list(variables), root_rank, name, process_set=process_set)
    assigned = [variable.assign(value) for variable, value in zip(variables, values)]
    return list(variables) if tf.executing_eagerly() else assigned


def alltoall(
    tensor: Any,
    splits: Optional[Any] = None,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows of `tensor` to every rank, and returns the received rows in rank order.

    `splits`: the number of rows for each rank, a list or an int32 tensor; None sends equal parts.
    Returns the tensor without `splits`, else the pair of it and the int32 tensor with the number of
    rows from each rank.
    """
    number = _nodes.group_of(process_set)
    sent = _nodes.to_tensor(tensor, "alltoall")
    rows = _nodes.to_splits(splits)
    tensor_name = _nodes.node_name("HorovodAlltoall", name, [sent], ignore_name_scope)
    output, received = _nodes.alltoall(sent, rows, tensor_name, number, name)
    return output if splits is None else (output, received)


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: ReduceOp = Average,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Reduces as `allreduce` does, and returns this rank's share of the rows.

    `tensor`: at least one dimension. If the rows do not divide evenly, the first ranks get one more.
    `op`: Average or Sum. The gradients of the rows are gathered, and for a sum multiplied by the number
    of ranks.
    """
    return grouped_reducescatter(
        [tensor], device_dense, compression, op, process_set, prescale_factor, postscale_factor, name, ignore_name_scope
    )[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
) -> List[tf.Tensor]:
    """Reduces a list of tensors by `reducescatter` as one request. An empty list makes no request, and returns
    an empty list."""
    number = _nodes.group_of(process_set)
    check_compression(compression)
    _reduced.note()
    if isinstance(tensors, (list, tuple)) and not tensors:
        return []
    pairs = [compression.compress(tensor) for tensor in _members("reducescatter", tensors)]
    sent = [pair[0] for pair in pairs]
    results = _nodes.reducescatter(
        sent,
        _nodes.node_name("HorovodReducescatter", name, sent, ignore_name_scope),
        op,
        _nodes.bits_of(prescale_factor, "reducescatter"),
        _nodes.bits_of(postscale_factor, "reducescatter"),
        number,
        name,
    )
    return [compression.decompress(tensor, pair[1]) for tensor, pair in zip(results, pairs)]


def rank_op(name: Optional[str] = None) -> tf.Tensor:
    """Returns the rank of this process as a scalar int32 tensor, evaluated when the graph runs."""
    return _nodes.number(0, name=name)


def local_rank_op(name: Optional[str] = None) -> tf.Tensor:
    """Returns the rank of this process on its host as a scalar int32 tensor, evaluated when the graph runs."""
    return _nodes.number(1, name=name)


def size_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """Returns the number of ranks as a scalar int32 tensor, evaluated when the graph runs."""
    return _nodes.number(2, process_set_id, name)


def local_size_op(name: Optional[str] = None) -> tf.Tensor:
    """Returns the number of ranks on this host as a scalar int32 tensor, evaluated when the graph runs."""
    return _nodes.number(3, name=name)


def process_set_included_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """Returns 1 if this process is a member of the set, else 0, as a scalar int32 tensor, evaluated when the
    graph runs."""
    return _nodes.number(4, process_set_id, name)
