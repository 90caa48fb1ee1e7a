"""Allreduce of one tensor and of groups."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch

from horovod import _frontend, _ops
from horovod._compression import check_compression
from horovod._frontend import ReduceOp
from horovod._ops import Max, Min, Product
from horovod.process_sets import ProcessSet, global_process_set
from horovod.torch import _submission
from horovod.torch._submission import Tensors
from horovod.torch.compression import Compression

__all__ = [
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
]


def _start(tensors: Tensors, in_place: bool, average: Optional[bool], name: Optional[str], op: Any, *terms: Any) -> int:
    op = _frontend.choose_op(average, op)
    return _frontend.allreduce(_submission.elementwise, tensors, in_place, op, name, *terms)


def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce` and returns a handle; the result is a new tensor without gradient."""
    return _start([tensor], False, average, name, op, prescale_factor, postscale_factor, process_set)


@_submission.fast_path("allreduce.")
def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce_` and returns a handle; the result replaces `tensor`'s values."""
    return _start([tensor], True, average, name, op, prescale_factor, postscale_factor, process_set)


@_submission.fast_path("allreduce.", waits=True)
def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Like `allreduce`, in place and without gradient. Returns `tensor` with its new values."""
    return _ops.run(
        allreduce_async_(
            tensor, None, name, _frontend.choose_op(average, op), prescale_factor, postscale_factor, process_set
        )
    )


def _check_differentiable(op: ReduceOp) -> None:
    if op in (Min, Max, Product):
        raise NotImplementedError("An allreduce with Min, Max or Product has no gradient; detach its input.")


class HorovodAllreduce(torch.autograd.Function):
    """The autograd node of allreduce: its gradient is allreduced in the same way."""

    @staticmethod
    def forward(ctx, tensor, average, name, op, prescale_factor, postscale_factor, process_set):
        op = _frontend.choose_op(average, op)
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set)
        return _ops.run(allreduce_async(tensor, None, name, op, prescale_factor, postscale_factor, process_set))

    @staticmethod
    def backward(ctx, grad_output):
        _check_differentiable(ctx.arguments[0])
        grad = _submission.in_graph(HorovodAllreduce, grad_output, None, None, *ctx.arguments)
        return grad, None, None, None, None, None, None


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns the tensor reduced over all ranks, element by element. Does not change `tensor`.

    `tensor`: any shape, the same shape and dtype on all ranks. `op`: Average (the default), Sum, Min,
    Max, Product or Adasum; an average of integers is truncated towards zero (its sum wraps
    around only in 64 bits), and a NaN of any rank is the result. `prescale_factor` multiplies
    the inputs and `postscale_factor` the results; neither may be 0. `average` is the
    deprecated argument for Average or Sum. Differentiable, except with Min, Max and Product:
    all ranks must then run backward too. Complex numbers are reduced by Sum and Average only.
    """
    op = _frontend.choose_op(average, op)
    if compression is not Compression.none:
        check_compression(compression)
    compressed, context = compression.compress(tensor)
    reduced = _submission.in_graph(
        HorovodAllreduce, compressed, None, name, op, prescale_factor, postscale_factor, process_set
    )
    return compression.decompress(reduced, context)


def grouped_allreduce_async(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce` and returns one handle for the group."""
    base = _frontend.group_base("grouped_allreduce", tensors, name, process_set)
    return _start(tensors, False, average, None, op, prescale_factor, postscale_factor, process_set, base)


def grouped_allreduce_async_(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce_` and returns one handle for the group."""
    base = _frontend.group_base("grouped_allreduce", tensors, name, process_set)
    return _start(tensors, True, average, None, op, prescale_factor, postscale_factor, process_set, base)


def grouped_allreduce_(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tuple[torch.Tensor, ...]:
    """Like `grouped_allreduce`, in place and without gradient. Returns the given tensors."""
    return _ops.run(
        grouped_allreduce_async_(
            tensors, None, name, _frontend.choose_op(average, op), prescale_factor, postscale_factor, process_set
        )
    )


class HorovodGroupedAllreduce(torch.autograd.Function):
    """The autograd node of grouped_allreduce."""

    @staticmethod
    def forward(ctx, average, name, op, prescale_factor, postscale_factor, process_set, *tensors):
        op = _frontend.choose_op(average, op)
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set)
        return _ops.run(
            grouped_allreduce_async(tensors, None, name, op, prescale_factor, postscale_factor, process_set)
        )

    @staticmethod
    def backward(ctx, *grad_outputs):
        _check_differentiable(ctx.arguments[0])
        grads = _submission.in_graph(HorovodGroupedAllreduce, None, None, *ctx.arguments, *grad_outputs)
        return (None, None, None, None, None, None, *grads)


def grouped_allreduce(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[torch.Tensor]:
    """Reduces several tensors as one request. The reduction starts when all ranks have submitted all of
    them.

    `tensors`: a list of tensors as for `allreduce`, in the same order on all ranks. Returns a list of
    new tensors.
    """
    op = _frontend.choose_op(average, op)
    _frontend.group_base("grouped_allreduce", tensors, "")
    check_compression(compression)
    compressed, contexts = zip(*(compression.compress(tensor) for tensor in tensors))
    reduced = _submission.in_graph(
        HorovodGroupedAllreduce,
        None,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        *compressed,
    )
    return [compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts)]
