"""Small helpers, under the name that scripts import."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["refs_to_vars", "vars_to_refs"]


def vars_to_refs(vars: Any) -> Any:
    """Returns references, which can be keys of a dict; lists of variables in `vars` become tuples."""
    return tuple(map(vars_to_refs, vars)) if isinstance(vars, (list, tuple)) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """Inverts `vars_to_refs`; tuples become lists."""
    return list(map(refs_to_vars, refs)) if isinstance(refs, tuple) else refs.deref()


def _executing_eagerly() -> bool:
    return tf.executing_eagerly()
