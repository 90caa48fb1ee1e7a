"""Redirects functions of a framework whose calls a distributed optimizer must observe."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any, Callable, Sequence


def redirect(function: Any, call: Callable[..., Any]) -> None:
    """Makes a function of a framework run `call(the original, ...)`, even where a program has already imported the
    function by its name. Changes the function itself, not the name in its module. A second redirection, by a module
    that is imported again, replaces the first one."""
    original = getattr(function, "_hvd_original", None)
    if original is None:
        original = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        original.__kwdefaults__ = function.__kwdefaults__
        if hasattr(function, "__wrapped__"):
            original.__wrapped__ = function.__wrapped__  # type: ignore[attr-defined]
        function.__signature__ = inspect.signature(original)
        function._hvd_original = original
        # Another thread may call the function between these two lines. In both states, its code must find its defaults.
        function.__kwdefaults__ = {**(original.__kwdefaults__ or {}), "_call": functools.partial(call, original)}
        function.__code__ = _entry(original.__name__, original.__code__.co_freevars)
        function.__defaults__ = None
    function.__kwdefaults__ = {"_call": functools.partial(call, original)}


def _entry(name: str, free: Sequence[str]) -> types.CodeType:
    """Returns the code of a function that calls `_call`. A function accepts only code with as many free variables as
    the function has, and the code must list them, because bytecode compilers read the whole list."""
    use = f"\n        {', '.join(free)}" if free else ""  # after the return, so that it never runs
    source = (
        f"def outer({', '.join(free)}):\n"
        "    def entry(*_arguments, _call, **_keywords):\n"
        f"        return _call(*_arguments, **_keywords){use}\n"
        "    return entry\n"
    )
    made: dict = {}
    exec(compile(source, __file__, "exec"), made)
    code = made["outer"](*[None] * len(free)).__code__
    return code.replace(co_name=name)
