"""States of JAX programs that start again from their last commit: `hvd.elastic`.

Trees of arrays are attributes of an ObjectState as anything else: `ObjectState(params=params,
opt_state=opt_state, step=0)`. Jobs keep their size in this release; see `run`.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from horovod import _elastic
from horovod._elastic import ObjectState, State  # noqa: F401
from horovod.jax._errors import horovod_errors


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """`horovod._elastic.run`, to which a collective that failed inside `jax.jit` is a
    HorovodInternalError; all ranks must call the function."""
    return _elastic.run(functools.wraps(func)(horovod_errors()(func)))
