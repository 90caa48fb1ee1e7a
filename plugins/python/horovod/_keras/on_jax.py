"""Keras 3 on JAX: gradients are reduced inside the compiled step."""

from __future__ import annotations

from typing import Any, List, Sequence

import horovod.jax as hvd
from horovod._keras import _dense
from horovod._keras._dense import key_of  # noqa: F401

allreduce, allgather, broadcast = hvd.allreduce, hvd.allgather, hvd.broadcast
reducescatter = hvd.reducescatter


class Compression:
    """The choices for `compression` arguments."""

    none = _dense.NoCompression


def _reduce_all(grads: Sequence[Any], name: str, compression: Any, op: int, prescale: float,
                postscale: float, process_set: Any) -> List[Any]:
    return list(hvd.allreduce(list(grads), name, op, prescale, postscale, process_set))


def Reduction(*arguments: Any) -> _dense.Reduction:
    return _dense.Reduction(*arguments, reduce_all=_reduce_all)


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> None:
    values = hvd.broadcast_parameters([variable.value for variable in variables], root_rank)
    for variable, value in zip(variables, values):
        variable.assign(value)
