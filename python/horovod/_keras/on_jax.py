"""Keras 3 on JAX, which reduces gradients inside the compiled step."""

from __future__ import annotations

import functools
import weakref
from typing import Any, List, Sequence

import jax

import horovod.jax as hvd
from horovod._keras import _dense
from horovod._keras._dense import key_of  # noqa: F401
from horovod._keras._replicas import VariableCheck, names_of, needs_check
from horovod.jax._replicas import ReplicaCheck
from horovod.jax.compression import Compression, compress_all, decompress_all

allgather, broadcast, reducescatter = hvd.allgather, hvd.broadcast, hvd.reducescatter


def allreduce(value: Any, compression: Any = Compression.none, **arguments: Any) -> Any:
    sent, contexts = compress_all(compression, [value])
    return decompress_all(compression, [hvd.allreduce(sent[0], **arguments)], contexts)[0]


def _reduce_all(
    grads: Sequence[Any], name: str, compression: Any, op: int, prescale: float, postscale: float, process_set: Any
) -> List[Any]:
    sent, contexts = compress_all(compression, grads)
    reduced = hvd.allreduce(sent, name, op, prescale, postscale, process_set)
    return decompress_all(compression, reduced, contexts)


class _Check(ReplicaCheck):
    remedy = VariableCheck.remedy


_checks: weakref.WeakKeyDictionary[Any, _Check] = weakref.WeakKeyDictionary()  # by optimizer


def _before_reduction(
    reduction: Any, variables: Sequence[Any], reduced: Sequence[int], local: Sequence[bool], optimizer: Any
) -> None:
    if optimizer is None or not needs_check(reduction):
        return
    if optimizer not in _checks:
        _checks[optimizer] = _Check(reduction.process_set)
    names = names_of(variables)
    values = {names[i]: jax.numpy.asarray(each.value) for i, each in enumerate(variables) if not local[i]}
    _checks[optimizer].before_update(list(values.values()), values)


def Reduction(*arguments: Any) -> _dense.Reduction:
    return functools.partial(_dense.Reduction, reduce_all=_reduce_all, before_reduction=_before_reduction)(*arguments)


def is_traced(value: Any) -> bool:
    """Returns whether the value is a tracer of a function that JAX compiles."""
    return isinstance(value, jax.core.Tracer)


def total(flag: Any, name: str, process_set: Any) -> Any:
    return hvd.allreduce(flag, name=name, op=hvd.Sum, process_set=process_set)


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> None:
    values = hvd.broadcast_parameters([variable.value for variable in variables], root_rank)
    for variable, value in zip(variables, values):
        variable.assign(value)
