"""What the collectives of torch share: submitting tensors, shortcuts, making graph nodes."""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Tuple, Union

import torch

from horovod import _frontend
from horovod._frontend import ReduceOp, choose_op, group_base, member_names
from horovod.torch import _tensors

Tensors = Union[List[torch.Tensor], Tuple[torch.Tensor, ...]]

# By what the native module tells a dense tensor from others, and its dtype's number. Younger
# versions of torch describe a tensor to native code in one call.
PLAIN = (torch.Tensor, _tensors.DTYPES, torch.strided,
         getattr(torch.Tensor, "__dlpack_c_exchange_api__", None))


def shortcut(prefix: str, *, waits: bool = False) -> Callable[[Any], Any]:
    """Decorates an allreduce in place: the calls of every step (a dense tensor, a name, all ranks)
    run no Python. What needs more than that gets to the function."""
    return _frontend.shortcut(prefix, PLAIN, waits)


# Submits allreduce or broadcast, and what has outputs of rows.
elementwise: Callable[..., int] = functools.partial(_frontend.elementwise, _tensors)
rows: Callable[..., int] = functools.partial(_frontend.rows, _tensors)


def in_graph(function: Any, *arguments: Any) -> Any:
    # A graph node costs more than a small allreduce: make one where it is wanted only.
    wanted = torch.is_grad_enabled() and any(
        isinstance(argument, torch.Tensor) and argument.requires_grad for argument in arguments
    )
    return function.apply(*arguments) if wanted else function.forward(_NoContext(), *arguments)


class _NoContext:
    """Takes what `forward` notes for a `backward` that will not come."""
