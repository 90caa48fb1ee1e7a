"""Small helpers, under the name that scripts import."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["refs_to_vars", "vars_to_refs"]


def vars_to_refs(vars: Any) -> Any:
    """References, which can be keys of a dict, in tuples where `vars` has lists of variables."""
    return tuple(map(vars_to_refs, vars)) if isinstance(vars, (list, tuple)) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """The variables of `vars_to_refs`, in lists."""
    return list(map(refs_to_vars, refs)) if isinstance(refs, tuple) else refs.deref()


def _executing_eagerly() -> bool:
    return tf.executing_eagerly()
