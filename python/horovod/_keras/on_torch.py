"""Keras 3 on PyTorch."""

from __future__ import annotations

import functools
from typing import Any, List, Sequence

import torch

import horovod.torch as hvd
from horovod._keras import _dense
from horovod._keras._dense import key_of  # noqa: F401
from horovod._keras._frameworks import mark_allreduced
from horovod._keras._replicas import Checks, VariableCheck
from horovod.torch.compression import Compression  # noqa: F401


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.as_tensor(value)


def allreduce(value: Any, **arguments: Any) -> torch.Tensor:
    return mark_allreduced(
        hvd.allreduce(_tensor(value), **arguments), arguments.get("process_set", hvd.global_process_set)
    )


def allgather(value: Any, **arguments: Any) -> torch.Tensor:
    return hvd.allgather(_tensor(value), **arguments)


def broadcast(value: Any, root_rank: int, **arguments: Any) -> torch.Tensor:
    return hvd.broadcast(_tensor(value), root_rank, **arguments)


def reducescatter(value: Any, **arguments: Any) -> torch.Tensor:
    return hvd.reducescatter(_tensor(value), **arguments)


def _reduce_all(
    grads: Sequence[torch.Tensor],
    name: str,
    compression: Any,
    op: int,
    prescale: float,
    postscale: float,
    process_set: Any,
) -> List[torch.Tensor]:
    return list(
        hvd.grouped_allreduce(
            [grad.detach() for grad in grads],
            name=name,
            compression=compression,
            op=op,
            prescale_factor=prescale,
            postscale_factor=postscale,
            process_set=process_set,
        )
    )


_checks = Checks(VariableCheck, lambda variable: hasattr(variable, "numpy"))


def _before_reduction(
    reduction: Any, variables: Sequence[Any], reduced: Sequence[int], local: Sequence[bool], optimizer: Any
) -> None:
    check, chosen = _checks.find(reduction, variables, reduced, local, optimizer, lambda: f".{reduction.name}")
    if check is not None:
        if check.is_open:
            check.variables.values = [variable.numpy() for variable in chosen]
        check.before_reduction()
        check.variables.values = ()


def Reduction(*arguments: Any) -> _dense.Reduction:
    return functools.partial(_dense.Reduction, reduce_all=_reduce_all, before_reduction=_before_reduction)(*arguments)


def is_traced(value: Any) -> bool:
    """Returns whether the value is symbolic, in a function that torch compiles."""
    return False


def total(flag: Any, name: str, process_set: Any) -> Any:
    return hvd.allreduce(flag, name=name, op=hvd.Sum, process_set=process_set)


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> None:
    hvd.broadcast_parameters([(f"keras.{i}", variable.value.data) for i, variable in enumerate(variables)], root_rank)
