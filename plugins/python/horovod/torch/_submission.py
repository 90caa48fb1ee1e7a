"""What the collectives of torch share: submitting tensors, naming groups, making graph nodes."""

from __future__ import annotations

import warnings
from typing import Any, List, Optional, Sequence, Tuple, Union

import torch

from horovod import _native, _ops
from horovod._ops import Average, Kind, Sum
from horovod.process_sets import ProcessSet, global_process_set, id_of
from horovod.torch import _tensors

ReduceOp = int
Tensors = Union[List[torch.Tensor], Tuple[torch.Tensor, ...]]


def choose_op(average: Optional[bool], op: Optional[ReduceOp]) -> ReduceOp:
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("Give either op or average, not both; op=hvd.Average is the default.")
    warnings.warn("The argument average is deprecated; use op=hvd.Average or op=hvd.Sum.",
                  DeprecationWarning, stacklevel=4)
    return Average if average else Sum


# By what the native module tells a dense tensor from others, and its dtype's number.
_PLAIN = (torch.Tensor, _tensors.DTYPES, torch.strided)


def plain(kind: Kind, op: str, name: Optional[str], tensor: torch.Tensor, reduce_op: ReduceOp = Sum,
          root_rank: int = 0, process_set: int = 0, prescale: float = 1.0, postscale: float = 1.0
          ) -> Optional[int]:
    """`elementwise`, in place, for the named dense tensors of every step: by the shortest way.

    None where that way does not lead: an unnamed call, or a tensor that needs more than its
    address to be described.
    """
    if name is None or not prescale or not postscale:
        return None
    return _native.submit_in_place(kind, op, name, tensor, reduce_op, root_rank, process_set,
                                   prescale, postscale, _PLAIN)


def elementwise(
    kind: Kind,
    name: str,
    tensors: Sequence[torch.Tensor],
    in_place: bool,
    members: Sequence[Optional[str]] = (None,),
    *,
    grouped: bool = False,
    **arguments: Any,
) -> int:
    """Submits allreduce or broadcast: outputs are shaped as inputs."""
    raw, results, copies = [], [], []
    for tensor, member in zip(tensors, members):
        _tensors.check(tensor, member or name)
        dense = tensor if tensor.is_contiguous() else tensor.detach().contiguous()
        if not in_place:
            result = target = _tensors.empty_like(dense)
        else:
            result, target = tensor, dense
            if dense is not tensor:
                copies.append((tensor, dense))
        raw.append(_tensors.describe(dense, target, member))
        results.append((result, dense, target))

    def finish(handle: int) -> Any:
        with torch.no_grad():
            for tensor, dense in copies:
                tensor.copy_(dense)
        return tuple(entry[0] for entry in results) if grouped else results[0][0]

    return _ops.submit(kind, name, raw, keep=results, finish=finish, **arguments)


def rows(
    kind: Kind,
    name: str,
    tensors: Sequence[torch.Tensor],
    process_set: ProcessSet,
    members: Sequence[Optional[str]] = (None,),
    *,
    grouped: bool = False,
    with_splits: bool = False,
    **arguments: Any,
) -> int:
    """Submits allgather, alltoall or reducescatter: the runtime makes outputs of rows."""
    raw, keep = [], []
    for tensor, member in zip(tensors, members):
        _tensors.check(tensor, member or name)
        dense = tensor.detach().contiguous()
        keep.append(dense)
        raw.append(_tensors.describe(dense, None, member))

    def finish(handle: int) -> Any:
        outputs = [_ops.output(handle, index) for index in range(len(raw))]
        results = tuple(_tensors.take(output) for output in outputs)
        if with_splits:
            return results[0], torch.tensor(outputs[0].received_splits, dtype=torch.int32)
        return results if grouped else results[0]

    return _ops.submit(kind, name, raw, keep=keep, finish=finish, process_set=id_of(process_set),
                       **arguments)


def in_graph(function: Any, *arguments: Any) -> Any:
    # A graph node costs more than a small allreduce: make one where it is wanted only.
    wanted = torch.is_grad_enabled() and any(
        isinstance(argument, torch.Tensor) and argument.requires_grad for argument in arguments
    )
    return function.apply(*arguments) if wanted else function.forward(_NoContext(), *arguments)


class _NoContext:
    """Takes what `forward` notes for a `backward` that will not come."""


def member_names(op: str, base: str, count: int) -> List[str]:
    return [f"{op}.{base}_{index}of{count}" for index in range(1, count + 1)]


def group_base(op: str, tensors: Tensors, name: Optional[str],
               process_set: ProcessSet = global_process_set) -> str:
    if not isinstance(tensors, (list, tuple)) or not tensors:
        raise ValueError(f"{op} takes a list or tuple of at least one tensor.")
    return name if name is not None else _ops.auto_name(op, id_of(process_set))[len(op) + 1 :]
