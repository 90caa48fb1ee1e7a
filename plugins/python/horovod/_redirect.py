"""Functions of a framework that a distributed optimizer must know about."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any, Callable


def redirect(function: Any, call: Callable[..., Any]) -> None:
    """Makes a function of a framework run `call(the original, ...)`, also where a program has imported the
    function by its name already: the function itself changes, not the name in its module."""
    original = types.FunctionType(function.__code__, function.__globals__, function.__name__,
                                  function.__defaults__, function.__closure__)
    original.__kwdefaults__ = function.__kwdefaults__
    if hasattr(function, "__wrapped__"):
        original.__wrapped__ = function.__wrapped__  # type: ignore[attr-defined]
    function.__signature__ = inspect.signature(original)

    def entry(*args: Any, _call: Any, **kwargs: Any) -> Any:
        return _call(*args, **kwargs)

    function.__defaults__ = None
    function.__kwdefaults__ = {"_call": functools.partial(call, original)}
    function.__code__ = entry.__code__.replace(co_freevars=original.__code__.co_freevars,
                                               co_name=original.__name__)
