"""Detects a call of `broadcast_parameters` whose result the program has dropped: JAX's arrays do not change, so the
ranks would train from different parameters. A program may have made other arrays of the result, which this module
cannot detect."""

from __future__ import annotations

import warnings
import weakref
from typing import Any, List, Optional, Sequence, Tuple

import jax

_References = List["weakref.ReferenceType[Any]"]

# The arguments and results of the last call, until the next collective.
_last: Optional[Tuple[_References, _References]] = None


def note(arguments: Sequence[Any], results: Sequence[Any]) -> None:
    """Remembers a call, without keeping its arrays alive."""
    global _last
    pairs = [(old, new) for old, new in zip(arguments, results) if isinstance(old, jax.Array)]
    _last = ([weakref.ref(old) for old, _ in pairs], [weakref.ref(new) for _, new in pairs]) if pairs else None


def check() -> None:
    """Warns if all results of the last call are freed while its arguments are alive."""
    global _last
    if _last is None:
        return
    (arguments, results), _last = _last, None
    if all(old() is not None for old in arguments) and all(new() is None for new in results):
        warnings.warn(
            "hvd.broadcast_parameters returns the parameters, and this program has dropped its result, while those it "
            "gave are still there: if it trains from the latter, each rank trains from its own; write 'params = "
            "hvd.broadcast_parameters(params)'. If it trains from a copy of the result, nothing is wrong.",
            RuntimeWarning,
            stacklevel=4,
        )
