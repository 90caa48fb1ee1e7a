"""Collectives along the first dimension: allgather, alltoall, reducescatter."""

from __future__ import annotations

import functools
from itertools import compress
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union, overload

import torch

from horovod import _frontend, _ops
from horovod._compression import check_compression
from horovod._frontend import ReduceOp
from horovod._ops import Average, Kind, Sum
from horovod.process_sets import ProcessSet, global_process_set, id_of
from horovod.torch import _buckets, _submission
from horovod.torch._allreduce import HorovodAllreduce, HorovodGroupedAllreduce
from horovod.torch._submission import Tensors
from horovod.torch.compression import Compression

__all__ = [
    "allgather",
    "allgather_async",
    "alltoall",
    "alltoall_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
]

# A torch with this check warns once, unless the caller states whether to check.
_unchecked = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}

_rows = functools.partial(_frontend.named_rows, _submission.rows)


def allgather_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allgather` and returns a handle; the result is a new tensor without gradient."""
    return _rows(Kind.ALLGATHER, [tensor], name, process_set)


class HorovodAllgather(torch.autograd.Function):
    """The autograd node of allgather: each rank gets its rows of the averaged gradient."""

    @staticmethod
    def forward(ctx, tensor, name, process_set):
        handle = allgather_async(tensor, name, process_set)  # refuses a value that is not a tensor
        ctx.rows = tensor.shape[0] if tensor.dim() else 0
        ctx.process_set = process_set
        return _ops.run(handle)

    @staticmethod
    def backward(ctx, grad_output):
        averaged = _submission.in_graph(HorovodAllreduce, grad_output, None, None, Average, 1.0, 1.0, ctx.process_set)
        return (*_own_rows([averaged], [ctx.rows], ctx.process_set), None, None)


def _own_rows(gathered: Sequence[torch.Tensor], rows: Sequence[int], process_set: ProcessSet) -> List[torch.Tensor]:
    """Returns this rank's rows of each gathered tensor: `rows[i]` rows of tensor i. All ranks must call it."""
    table = _ops.run(allgather_async(torch.tensor([rows], device="cpu"), process_set=process_set))
    starts = table[: process_set.rank()].sum(0).tolist()
    return [tensor.narrow(0, start, count) for tensor, start, count in zip(gathered, starts, rows)]


def allgather(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns the tensors of all ranks, concatenated along the first dimension in rank order.

    `tensor`: at least one dimension. The first dimension may differ between ranks, and be 0. The other
    dimensions and the dtype must agree. Differentiable: the gradient is averaged over the ranks.
    """
    return _submission.in_graph(HorovodAllgather, tensor, name, process_set)


def grouped_allgather_async(
    tensors: Tensors,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allgather` and returns one handle for the group."""
    return _rows(Kind.ALLGATHER, tensors, name, process_set, True)


class HorovodGroupedAllgather(torch.autograd.Function):
    """The autograd node of grouped_allgather, with the gradients of HorovodAllgather for the group."""

    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        handle = grouped_allgather_async(tensors, name, process_set)
        ctx.rows = [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
        ctx.process_set = process_set
        return _ops.run(handle)

    @staticmethod
    def backward(ctx, *grad_outputs):
        # Members of an integer type or bool have no gradient, and an average of bool does not exist.
        has_gradient = [grad.is_floating_point() or grad.is_complex() for grad in grad_outputs]
        averaged = _submission.in_graph(
            HorovodGroupedAllreduce,
            None,
            None,
            Average,
            1.0,
            1.0,
            ctx.process_set,
            *compress(grad_outputs, has_gradient),
        )
        own = iter(_own_rows(averaged, list(compress(ctx.rows, has_gradient)), ctx.process_set))
        return (None, None, *(next(own) if has else None for has in has_gradient))


def grouped_allgather(
    tensors: Tensors,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Tuple[torch.Tensor, ...]:
    """Gathers several tensors as one request; each as `allgather`. Differentiable."""
    _frontend.group_base("grouped_allgather", tensors, "")
    return _submission.in_graph(HorovodGroupedAllgather, name, process_set, *tensors)


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: Optional[str],
    op: ReduceOp,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """Starts the reduction of a sparse COO tensor. Returns a function that waits for the reduced tensor and returns it.

    `op`: Average or Sum; raises ValueError for others. Gathers the rows of all ranks: until `coalesce`, the reduced
    tensor has as many entries as all inputs together.
    """
    if op not in (Average, Sum):
        raise ValueError(f"{name}: sparse tensors can be reduced by Average and Sum only.")
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        given = tensor.layout if isinstance(tensor, torch.Tensor) else f"a {type(tensor).__name__}"
        raise ValueError(f"{name}: sparse_allreduce_async takes a sparse COO tensor, not {given}.")
    base = name if name is not None else _ops.auto_name("sparse_allreduce", id_of(process_set))
    coalesced = tensor.coalesce()
    # Rows lie along the first dimension of the gathered tensor.
    indices = allgather_async(coalesced.indices().t().contiguous(), f"{base}.indices", process_set)
    values = allgather_async(coalesced.values(), f"{base}.values", process_set)

    found: list = []

    def wait() -> torch.Tensor:
        while len(found) < 2:  # goes on after an interruption
            found.append(_ops.wait(values if found else indices))
        return _sparse_sum(tensor, found[0], found[1], op, process_set)

    return wait


def sparse_gradient_async(
    tensor: torch.Tensor, name: str, op: ReduceOp, process_set: ProcessSet
) -> Callable[[], torch.Tensor]:
    """Starts the reduction of a sparse gradient by one request, with the name of the request for a dense gradient: if
    the ranks have gradients of both kinds, they get an error."""
    coalesced = tensor.coalesce()
    parts = [coalesced.values(), coalesced.indices().t().contiguous()]
    handle = _submission.rows(Kind.ALLGATHER, name, parts, process_set, (None, None), grouped=True)

    def wait() -> torch.Tensor:
        values, indices = _buckets.wait(handle)
        return _sparse_sum(tensor, indices, values, op, process_set)

    return wait


def _sparse_sum(
    like: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, op: ReduceOp, process_set: ProcessSet
) -> torch.Tensor:
    if op == Average:
        values = values / process_set.size()
    return torch.sparse_coo_tensor(indices.t(), values, like.shape, **_unchecked)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Union[None, torch.Tensor, Sequence[int]] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `alltoall` and returns a handle; the result is the pair (tensor, received splits)."""
    if isinstance(splits, torch.Tensor):
        if splits.dtype.is_floating_point or splits.dim() != 1:
            raise ValueError("alltoall: splits must be one-dimensional and of whole numbers.")
        splits = splits.tolist()
    return _rows(Kind.ALLTOALL, [tensor], name, process_set, with_splits=True, splits=() if splits is None else splits)


class HorovodAlltoall(torch.autograd.Function):
    """The autograd node of alltoall: the gradients of the rows return to the ranks that sent the rows."""

    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        output, received = _ops.run(alltoall_async(tensor, splits, name, process_set))
        ctx.received = received
        ctx.rows = tensor.shape[0]
        ctx.process_set = process_set
        return output, received

    @staticmethod
    def backward(ctx, grad_output, unused):
        grad, _ = _submission.in_graph(HorovodAlltoall, grad_output, ctx.received, None, ctx.process_set)
        if grad.shape[0] < ctx.rows:  # alltoall did not send rows beyond the sum of splits
            rest = grad.new_zeros(ctx.rows - grad.shape[0], *grad.shape[1:])
            grad = torch.cat([grad, rest])
        return grad, None, None, None


@overload
def alltoall(
    tensor: torch.Tensor,
    splits: None = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor: ...


@overload
def alltoall(
    tensor: torch.Tensor,
    splits: Union[torch.Tensor, Sequence[int]],
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Tuple[torch.Tensor, torch.Tensor]: ...


def alltoall(
    tensor: torch.Tensor,
    splits: Union[None, torch.Tensor, Sequence[int]] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """Sends rows of `tensor` to every rank, and returns the received rows in rank order.

    `tensor`: at least one dimension; the first may differ between ranks. `splits`: the number of rows
    for each rank, as a list or an integer tensor; None sends equal parts. Returns the tensor without
    `splits`, else the pair of it and the int32 tensor with the number of rows from each rank.
    Differentiable.
    """
    output, received = _submission.in_graph(HorovodAlltoall, tensor, splits, name, process_set)
    return output if splits is None else (output, received)


def reducescatter_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts `reducescatter` and returns a handle; the result is a tensor without gradient."""
    return _rows(
        Kind.REDUCESCATTER,
        [tensor],
        name,
        process_set,
        reduce_op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
    )


def grouped_reducescatter_async(
    tensors: Tensors,
    name: Optional[str] = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts `grouped_reducescatter` and returns one handle for the group."""
    return _rows(
        Kind.REDUCESCATTER,
        tensors,
        name,
        process_set,
        True,
        reduce_op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
    )


def _gradient_factor(op: ReduceOp, process_set: ProcessSet, prescale_factor: float, postscale_factor: float) -> float:
    """Returns the factor for the gathered gradient of a reducescatter."""
    return prescale_factor * postscale_factor * (process_set.size() if op == Sum else 1)


class HorovodReducescatter(torch.autograd.Function):
    """The autograd node of reducescatter: gathers the gradients of the rows."""

    @staticmethod
    def forward(ctx, tensor, name, op, process_set, prescale_factor, postscale_factor):
        ctx.factor = _gradient_factor(op, process_set, prescale_factor, postscale_factor)
        ctx.process_set = process_set
        return _ops.run(reducescatter_async(tensor, name, op, process_set, prescale_factor, postscale_factor))

    @staticmethod
    def backward(ctx, grad_output):
        grad = _submission.in_graph(HorovodAllgather, grad_output * ctx.factor, None, ctx.process_set)
        return grad, None, None, None, None, None


def reducescatter(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces as `allreduce` does, and returns this rank's share of the rows.

    `tensor`: at least one dimension, the same shape and dtype on all ranks. If the rows do not divide
    evenly, the first ranks get one more. `op`: Average or Sum. Differentiable: the gradients of the
    rows are gathered, and for a sum multiplied by the number of ranks.
    """
    check_compression(compression)
    compressed, context = compression.compress(tensor)
    reduced = _submission.in_graph(
        HorovodReducescatter, compressed, name, op, process_set, prescale_factor, postscale_factor
    )
    return compression.decompress(reduced, context)


class HorovodGroupedReducescatter(torch.autograd.Function):
    """The autograd node of grouped_reducescatter: gathers the gradients of the rows."""

    @staticmethod
    def forward(ctx, name, op, process_set, prescale_factor, postscale_factor, *tensors):
        ctx.factor = _gradient_factor(op, process_set, prescale_factor, postscale_factor)
        ctx.process_set = process_set
        return _ops.run(grouped_reducescatter_async(tensors, name, op, process_set, prescale_factor, postscale_factor))

    @staticmethod
    def backward(ctx, *grad_outputs):
        grads = _submission.in_graph(
            HorovodGroupedAllgather, None, ctx.process_set, *[grad * ctx.factor for grad in grad_outputs]
        )
        return (None, None, None, None, None, *grads)


def grouped_reducescatter(
    tensors: Tensors,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[torch.Tensor]:
    """Reduces and scatters several tensors as one request; each as `reducescatter`.
    Differentiable."""
    _frontend.group_base("grouped_reducescatter", tensors, "")
    check_compression(compression)
    compressed, contexts = zip(*(compression.compress(tensor) for tensor in tensors))
    reduced = _submission.in_graph(
        HorovodGroupedReducescatter,
        name,
        op,
        process_set,
        prescale_factor,
        postscale_factor,
        *compressed,
    )
    return [compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts)]
