"""The shared part of torch's collectives: submission of tensors, fast paths, and autograd nodes."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple, TypeVar, Union

import torch
from torch.autograd import forward_ad

from horovod import _frontend
from horovod._ops import Kind
from horovod.process_sets import ProcessSet, id_of
from horovod.torch import _devices, _tensors

Tensors = Union[List[torch.Tensor], Tuple[torch.Tensor, ...]]

# The native module uses these values to recognise dense tensors, and to find the numbers of dtypes. Newer versions of
# torch describe a tensor to native code in one call.
PLAIN = (torch.Tensor, _tensors.DTYPES, torch.strided, getattr(torch.Tensor, "__dlpack_c_exchange_api__", None))


_Function = TypeVar("_Function", bound=Callable[..., Any])


def fast_path(prefix: str, *, waits: bool = False) -> Callable[[_Function], _Function]:
    """Decorates an in-place allreduce; see `_frontend.fast_path`."""
    return _frontend.fast_path(prefix, PLAIN, waits)


def elementwise(kind: Kind, name: str, tensors: Tensors, in_place: bool, *more: Any, **arguments: Any) -> int:
    """Submits allreduce or broadcast."""
    away = _devices.of(tensors, name)
    if away is None:
        return _frontend.elementwise(_tensors, kind, name, tensors, in_place, *more, **arguments)
    arrays = _devices.arrays_for(away, tensors, kind, arguments, arguments["process_set"])
    if not arrays.is_staged:
        _devices.use_fast_path(kind, tensors, arguments, away)
    return _frontend.elementwise(arrays, kind, name, tensors, in_place, *more, **arguments)


def rows(kind: Kind, name: str, tensors: Tensors, process_set: ProcessSet, *more: Any, **arguments: Any) -> int:
    """Submits an operation whose outputs are rows."""
    away = _devices.of(tensors, name)
    arrays = _tensors if away is None else _devices.arrays_for(away, tensors, kind, arguments, id_of(process_set))
    return _frontend.rows(arrays, kind, name, tensors, process_set, *more, **arguments)


def in_graph(function: Any, *arguments: Any) -> Any:
    # A graph node costs more than a small allreduce, so create a node only if a gradient is needed. In forward mode,
    # torch refuses the node of a tensor with a tangent; without a node, the tangent would be lost silently.
    wanted = forward_ad._current_level >= 0 or (
        torch.is_grad_enabled()
        and any(isinstance(argument, torch.Tensor) and argument.requires_grad for argument in arguments)
    )
    return function.apply(*arguments) if wanted else function.forward(_NoContext(), *arguments)


class _NoContext:
    """A context for `forward` when no `backward` will follow."""
