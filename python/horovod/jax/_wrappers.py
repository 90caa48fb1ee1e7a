"""Finds wrappers of optax in which each rank alone decides whether the wrapped optimizer updates."""

from __future__ import annotations

import inspect
import sys
from types import CodeType
from typing import Any, Iterator, NamedTuple, Optional


def _codes(function: Any) -> Iterator[CodeType]:
    """Yields the code of a function and of all functions defined in it."""
    pending = [inspect.unwrap(function).__code__]
    while pending:
        code = pending.pop()
        yield code
        pending.extend(each for each in code.co_consts if isinstance(each, CodeType))


def _skips_by_choice(steps: Any, multi_steps: Any) -> bool:
    """Returns whether the program passed its own should_skip_update_fn to this MultiSteps."""
    chosen = getattr(steps, "_should_skip_update_fn", None)
    return getattr(chosen, "__code__", None) not in set(_codes(multi_steps.__init__))


class Wrapper(NamedTuple):
    name: str
    inside: str  # the argument to write for DistributedOptimizer


_FINITE = Wrapper("optax.apply_if_finite", "optax.apply_if_finite(...)")
_STEPS = Wrapper("optax.MultiSteps with should_skip_update_fn", "optax.MultiSteps(...).gradient_transformation()")


def deciding_wrapper() -> Optional[Wrapper]:
    """Returns the optax wrapper whose update runs on this thread, if it skips the wrapped optimizer depending on the
    rank's own gradients; else None. These wrappers trace the wrapped update by `jax.lax.cond`, even outside of
    `jax.jit`, so the call stack shows them."""
    optax = sys.modules.get("optax")
    if not hasattr(optax, "apply_if_finite") or not hasattr(optax, "MultiSteps"):
        return None
    finite = set(_codes(optax.apply_if_finite))  # type: ignore[union-attr]
    multi_steps = optax.MultiSteps  # type: ignore[union-attr]
    update = inspect.unwrap(multi_steps.update).__code__
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code in finite and frame.f_code.co_name != "init":
            return _FINITE
        if frame.f_code is update and _skips_by_choice(frame.f_locals.get("self"), multi_steps):
            return _STEPS
        frame = frame.f_back
    return None
