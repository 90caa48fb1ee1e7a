"""Collectives on torch tensors. The name is the one that scripts import; no MPI is needed.

Rules for all of them:

* Every rank must make the same call under the same name. Unnamed calls are named by their order,
  so all ranks must then make them in the same order.
* Tensors lie in host memory, in any layout of strides, of type uint8, int8, int16, int32, int64,
  float16, bfloat16, float32, float64 or bool (and uint16, uint32, uint64 where torch has them).
* The `_async` forms return a handle for `poll` and `synchronize` at once; until then the tensors
  must not be changed. The forms that end in `_` write into the tensor they are given.
* ValueError: a bad argument, a name that is in flight, or ranks that disagree (every rank gets
  it, and Horovod stays usable). HorovodInternalError: a rank died or shut down, or Horovod is
  not initialised. NotImplementedError: not in this build.
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import torch

from horovod import _ops
from horovod._basics import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
)
from horovod._ops import Adasum, Average, Kind, Max, Min, Product, Sum
from horovod.process_sets import ProcessSet, global_process_set, id_of
from horovod.torch import _tensors
from horovod.torch.compression import Compression

__all__ = [
    "Adasum", "Average", "Max", "Min", "Product", "Sum",
    "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async",
    "allreduce_async_", "barrier", "broadcast", "broadcast_", "broadcast_async",
    "broadcast_async_", "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built",
    "gloo_built", "gloo_enabled", "grouped_allgather", "grouped_allgather_async",
    "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "init", "is_homogeneous", "is_initialized", "local_rank",
    "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "poll",
    "rank", "rocm_built", "shutdown", "size", "sparse_allreduce_async", "synchronize",
]

_ReduceOp = int
_Tensors = Union[List[torch.Tensor], Tuple[torch.Tensor, ...]]


# ---- Handles ---------------------------------------------------------------------------------


def poll(handle: int) -> bool:
    """Whether the work is complete, so that `synchronize` returns at once.

    Raises ValueError for a handle that was synchronized already or never existed.
    """
    return _ops.poll(handle)


def synchronize(handle: int) -> Any:
    """Waits until the work is complete and returns its result: a tensor, or a tuple of tensors
    for the grouped forms.

    None for a handle that was synchronized already. Raises what the work failed with.
    """
    if not _ops.is_pending(handle):
        return None
    return _ops.wait(handle)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns once every rank has called it."""
    _ops.barrier(id_of(process_set))


# ---- Allreduce -------------------------------------------------------------------------------


def _choose_op(average: Optional[bool], op: Optional[_ReduceOp]) -> _ReduceOp:
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("Give either op or average, not both; op=hvd.Average is the default.")
    warnings.warn("The argument average is deprecated; use op=hvd.Average or op=hvd.Sum.",
                  DeprecationWarning, stacklevel=3)
    return Average if average else Sum


def _elementwise(
    kind: Kind,
    name: str,
    tensors: Sequence[torch.Tensor],
    in_place: bool,
    member_names: Sequence[Optional[str]] = (None,),
    *,
    grouped: bool = False,
    **arguments: Any,
) -> int:
    """Submits allreduce or broadcast: outputs are shaped as inputs."""
    raw, results, copies = [], [], []
    for tensor, member_name in zip(tensors, member_names):
        _tensors.check(tensor, member_name or name)
        dense = tensor if tensor.is_contiguous() else tensor.detach().contiguous()
        if not in_place:
            result = target = _tensors.empty_like(dense)
        else:
            result, target = tensor, dense
            if dense is not tensor:
                copies.append((tensor, dense))
        raw.append(_tensors.describe(dense, target, member_name))
        results.append((result, dense, target))

    def finish(handle: int) -> Any:
        with torch.no_grad():
            for tensor, dense in copies:
                tensor.copy_(dense)
        return tuple(entry[0] for entry in results) if grouped else results[0][0]

    return _ops.submit(kind, name, raw, keep=results, finish=finish, **arguments)


def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[_ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce` and returns a handle; the result is a new tensor, without gradient."""
    return _elementwise(
        Kind.ALLREDUCE, _ops.full_name("allreduce", name), [tensor], False,
        reduce_op=_choose_op(average, op), prescale=prescale_factor, postscale=postscale_factor,
        process_set=id_of(process_set),
    )


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[_ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce_` and returns a handle; the result replaces `tensor`'s values."""
    return _elementwise(
        Kind.ALLREDUCE, _ops.full_name("allreduce", name), [tensor], True,
        reduce_op=_choose_op(average, op), prescale=prescale_factor, postscale=postscale_factor,
        process_set=id_of(process_set),
    )


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[_ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """As `allreduce`, in place and without gradient: returns `tensor` with its new values."""
    return _ops.run(
        allreduce_async_(tensor, None, name, _choose_op(average, op), prescale_factor,
                         postscale_factor, process_set)
    )


def _check_differentiable(op: _ReduceOp) -> None:
    if op in (Min, Max, Product):
        raise NotImplementedError(
            "An allreduce with Min, Max or Product has no gradient; detach its input."
        )


class HorovodAllreduce(torch.autograd.Function):
    """allreduce as a node of the graph: the gradient is allreduced in the same way."""

    @staticmethod
    def forward(ctx, tensor, name, op, prescale_factor, postscale_factor, process_set):
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set)
        return _ops.run(
            allreduce_async(tensor, None, name, op, prescale_factor, postscale_factor, process_set)
        )

    @staticmethod
    def backward(ctx, grad_output):
        _check_differentiable(ctx.arguments[0])
        return (
            _ops.run(allreduce_async(grad_output, None, None, *ctx.arguments)),
            None, None, None, None, None,
        )


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[_ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns the tensor reduced over all ranks, element by element; `tensor` stays as it is.

    `tensor`: any shape, the same shape and dtype on all ranks. `op`: Average (the default), Sum,
    Min, Max, Product or Adasum; an average of integers is cut towards zero. Inputs are multiplied
    by `prescale_factor` and results by `postscale_factor`, neither of which may be 0. `average` is
    the deprecated way to say Average or Sum. Differentiable, but for Min, Max and Product: all
    ranks must then run backward too.
    """
    op = _choose_op(average, op)
    compressed, context = compression.compress(tensor)
    reduced = _in_graph(
        HorovodAllreduce, compressed, name, op, prescale_factor, postscale_factor, process_set
    )
    return compression.decompress(reduced, context)


def _in_graph(function: Any, *arguments: Any) -> Any:
    # A graph node costs more than a small allreduce: make one where it is wanted only.
    wanted = torch.is_grad_enabled() and any(
        isinstance(argument, torch.Tensor) and argument.requires_grad for argument in arguments
    )
    return function.apply(*arguments) if wanted else function.forward(_NoContext(), *arguments)


class _NoContext:
    """Takes what `forward` notes for a `backward` that will not come."""


# ---- Grouped allreduce -----------------------------------------------------------------------


def _member_names(op: str, base: str, count: int) -> List[str]:
    return [f"{op}.{base}_{index}of{count}" for index in range(1, count + 1)]


def _group_base(op: str, tensors: _Tensors, name: Optional[str]) -> str:
    if not isinstance(tensors, (list, tuple)) or not tensors:
        raise ValueError(f"{op} takes a list or tuple of at least one tensor.")
    return name if name is not None else _ops.auto_name(op)[len(op) + 1 :]


def _grouped_allreduce(tensors, in_place, average, name, op, prescale_factor, postscale_factor,
                       process_set) -> int:
    base = _group_base("grouped_allreduce", tensors, name)
    return _elementwise(
        Kind.ALLREDUCE, f"grouped_allreduce.{base}", tensors, in_place,
        _member_names("grouped_allreduce", base, len(tensors)), grouped=True,
        reduce_op=_choose_op(average, op), prescale=prescale_factor, postscale=postscale_factor,
        process_set=id_of(process_set),
    )


def grouped_allreduce_async(
    tensors: _Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[_ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce` and returns one handle for the group."""
    return _grouped_allreduce(tensors, False, average, name, op, prescale_factor, postscale_factor,
                              process_set)


def grouped_allreduce_async_(
    tensors: _Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[_ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce_` and returns one handle for the group."""
    return _grouped_allreduce(tensors, True, average, name, op, prescale_factor, postscale_factor,
                              process_set)


def grouped_allreduce_(
    tensors: _Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[_ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tuple[torch.Tensor, ...]:
    """As `grouped_allreduce`, in place and without gradient: returns the tensors given."""
    return _ops.run(
        grouped_allreduce_async_(tensors, None, name, _choose_op(average, op), prescale_factor,
                                 postscale_factor, process_set)
    )


class HorovodGroupedAllreduce(torch.autograd.Function):
    """grouped_allreduce as a node of the graph."""

    @staticmethod
    def forward(ctx, name, op, prescale_factor, postscale_factor, process_set, *tensors):
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set)
        return _ops.run(
            grouped_allreduce_async(tensors, None, name, op, prescale_factor, postscale_factor,
                                    process_set)
        )

    @staticmethod
    def backward(ctx, *grad_outputs):
        _check_differentiable(ctx.arguments[0])
        grads = _ops.run(grouped_allreduce_async(grad_outputs, None, None, *ctx.arguments))
        return (None, None, None, None, None, *grads)


def grouped_allreduce(
    tensors: _Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[_ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tuple[torch.Tensor, ...]:
    """Reduces several tensors as one request: none starts before all are there on all ranks.

    `tensors`: list of tensors as for `allreduce`, in the same order on all ranks. Returns a tuple
    of new tensors.
    """
    op = _choose_op(average, op)
    _group_base("grouped_allreduce", tensors, "")
    compressed, contexts = zip(*(compression.compress(tensor) for tensor in tensors))
    reduced = _in_graph(
        HorovodGroupedAllreduce, name, op, prescale_factor, postscale_factor, process_set,
        *compressed,
    )
    return tuple(
        compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts)
    )


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: Optional[str],
    op: _ReduceOp,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """Starts the reduction of a sparse COO tensor; call the result to wait for the sparse sum.

    `op` is Average or Sum; ValueError for others. Rows of all ranks are gathered, so the result
    has as many entries as all inputs together until it is coalesced.
    """
    if op not in (Average, Sum):
        raise ValueError(f"{name}: sparse tensors can be reduced by Average and Sum only.")
    base = name if name is not None else _ops.auto_name("sparse_allreduce")
    coalesced = tensor.coalesce()
    # Rows lie along the first dimension of what is gathered.
    indices = allgather_async(coalesced.indices().t().contiguous(), f"{base}.indices", process_set)
    values = allgather_async(coalesced.values(), f"{base}.values", process_set)

    def wait() -> torch.Tensor:
        all_values = synchronize(values)
        all_indices = synchronize(indices)
        if op == Average:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(all_indices.t(), all_values, tensor.shape)

    return wait


# ---- Allgather -------------------------------------------------------------------------------


def _submit_allgather(name, tensors, member_names, process_set, grouped) -> int:
    raw, keep = [], []
    for tensor, member_name in zip(tensors, member_names):
        _tensors.check(tensor, member_name or name)
        if tensor.dim() == 0:
            raise ValueError(
                f"{member_name or name}: a scalar has no rows to gather; use tensor.reshape(1)."
            )
        dense = tensor.detach().contiguous()
        keep.append(dense)
        raw.append(_tensors.describe(dense, None, member_name))

    def finish(handle: int) -> Any:
        results = tuple(_tensors.take(_ops.output(handle, index)) for index in range(len(raw)))
        return results if grouped else results[0]

    return _ops.submit(Kind.ALLGATHER, name, raw, keep=keep, finish=finish,
                       process_set=id_of(process_set))


def allgather_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allgather` and returns a handle; the result is a new tensor, without gradient."""
    return _submit_allgather(
        _ops.full_name("allgather", name), [tensor], [None], process_set, False
    )


class HorovodAllgather(torch.autograd.Function):
    """allgather as a node of the graph: each rank gets its rows of the averaged gradient."""

    @staticmethod
    def forward(ctx, tensor, name, process_set):
        ctx.rows = tensor.shape[0] if tensor.dim() else 0
        ctx.process_set = process_set
        return _ops.run(allgather_async(tensor, name, process_set))

    @staticmethod
    def backward(ctx, grad_output):
        averaged = _ops.run(allreduce_async(grad_output, op=Average, process_set=ctx.process_set))
        rows = _ops.run(
            allgather_async(torch.tensor([ctx.rows]), process_set=ctx.process_set)
        ).tolist()
        start = sum(rows[: ctx.process_set.rank()])
        return averaged.narrow(0, start, ctx.rows), None, None


def allgather(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns the tensors of all ranks, concatenated along the first dimension in rank order.

    `tensor`: at least one dimension; the first may differ between ranks, and be 0, the others and
    the dtype must agree. Differentiable: the gradient is averaged over the ranks.
    """
    return _in_graph(HorovodAllgather, tensor, name, process_set)


def grouped_allgather_async(
    tensors: _Tensors,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allgather` and returns one handle for the group."""
    base = _group_base("grouped_allgather", tensors, name)
    return _submit_allgather(
        f"grouped_allgather.{base}", tensors,
        _member_names("grouped_allgather", base, len(tensors)), process_set, True,
    )


def grouped_allgather(
    tensors: _Tensors,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Tuple[torch.Tensor, ...]:
    """Gathers several tensors as one request; each as `allgather`, without gradient."""
    return _ops.run(grouped_allgather_async(tensors, name, process_set))


# ---- Broadcast -------------------------------------------------------------------------------


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `broadcast` and returns a handle; the result is a new tensor, without gradient."""
    return _elementwise(
        Kind.BROADCAST, _ops.full_name("broadcast", name), [tensor], False,
        root_rank=root_rank, process_set=id_of(process_set),
    )


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `broadcast_` and returns a handle; the root's values replace `tensor`'s."""
    return _elementwise(
        Kind.BROADCAST, _ops.full_name("broadcast", name), [tensor], True,
        root_rank=root_rank, process_set=id_of(process_set),
    )


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """As `broadcast`, in place and without gradient: returns `tensor` with the root's values."""
    return _ops.run(broadcast_async_(tensor, root_rank, name, process_set))


class HorovodBroadcast(torch.autograd.Function):
    """broadcast as a node of the graph: the root gets the averaged gradient, others zeros."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return _ops.run(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, grad_output):
        averaged = _ops.run(allreduce_async(grad_output, op=Average, process_set=ctx.process_set))
        if rank() != ctx.root_rank:
            averaged.zero_()
        return averaged, None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns the tensor of the rank `root_rank` on every rank; `tensor` stays as it is.

    `tensor`: any shape, the same shape and dtype on all ranks. `root_rank` is a rank of the job.
    Differentiable: the root gets the gradient averaged over the ranks.
    """
    return _in_graph(HorovodBroadcast, tensor, root_rank, name, process_set)
