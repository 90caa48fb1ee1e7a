"""States of JAX programs that start again from their last commit: `hvd.elastic`.

Trees of arrays can be attributes of an ObjectState: `ObjectState(params=params, opt_state=opt_state, step=0)`. See
`run`, and docs/elastic.md.
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, Optional

import jax

from horovod import _elastic
from horovod._basics import init
from horovod._elastic import State, leave_seconds  # noqa: F401
from horovod.jax._errors import horovod_errors


class ObjectState(_elastic.ObjectState):
    """A state whose attributes are the keyword arguments: trees of arrays, and any picklable objects.

    A commit keeps references to arrays of JAX, which do not change, and copies of everything else. `commit` raises
    ValueError when an array of the state or of the last commit was donated to a compiled function (`donate_argnums`),
    because the program could not return to this commit after a failure.
    """

    def save(self) -> None:
        """Stores the attributes, once the computations that produce them have ended. Raises the error of a failed
        computation instead, so that no commit contains the result of a failed collective."""
        attributes = self._attributes()
        donated = _donated(attributes) or _donated(self._saved_state)
        if donated:
            raise ValueError(f"ObjectState.commit: {donated}")
        jax.block_until_ready(list(attributes.values()))
        super().save()

    def restore(self) -> None:
        """Sets the attributes to those of the last commit. If arrays of that commit were donated since, this rank
        receives the state of another rank in the next synchronisation."""
        self._lost = _donated(self._saved_state)
        super().restore()

    def _copied(self, attributes: Dict[str, Any]) -> Dict[str, Any]:
        arrays = [leaf for leaf in jax.tree_util.tree_leaves(attributes) if isinstance(leaf, jax.Array)]
        return copy.deepcopy(attributes, {id(array): array for array in arrays})


def _donated(attributes: Dict[str, Any]) -> Optional[str]:
    for name, value in attributes.items():
        if any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in jax.tree_util.tree_leaves(value)):
            return (
                f"arrays of the attribute {name} were donated to a compiled function, which deletes them; leave "
                f"out donate_argnums there, or give the state a copy: jax.tree_util.tree_map(jnp.copy, {name})."
            )
    return None


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates as `horovod._elastic.run` does, and turns the failure of a collective inside `jax.jit` into a
    HorovodInternalError. All ranks must call the decorated function. After each change of the ranks JAX compiles again,
    since compiled functions have shapes for one number of ranks."""
    return _elastic.run_with(func, _restart, horovod_errors)


def _restart() -> None:
    jax.clear_caches()
    init()
