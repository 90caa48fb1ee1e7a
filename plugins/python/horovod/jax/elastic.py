"""States of JAX programs that start again from their last commit: `hvd.elastic`.

Trees of arrays are attributes of an ObjectState as anything else: `ObjectState(params=params,
opt_state=opt_state, step=0)`. See `run`, and docs/elastic.md.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import jax

from horovod import _elastic
from horovod._elastic import State  # noqa: F401
from horovod.jax._errors import horovod_errors


class ObjectState(_elastic.ObjectState):
    """A state whose attributes are the keyword arguments: trees of arrays, and any picklable objects."""

    def save(self) -> None:
        """Keeps copies of the attributes, once the computations that produce them have ended. Raises their
        error instead, so that no commit has a result of a failed collective."""
        jax.block_until_ready([getattr(self, name) for name in self._saved_state])
        super().save()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """`horovod._elastic.run`, to which a collective that failed inside `jax.jit` is a
    HorovodInternalError; all ranks must call the function."""
    return _elastic.run(functools.wraps(func)(horovod_errors()(func)))
