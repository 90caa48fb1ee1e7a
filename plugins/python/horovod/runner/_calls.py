"""Messages between `horovod.run` and its ranks: a function to them, results and failures back.

Pickles, which run code when they are read: they come from the job's store alone, whose every response
is signed with the job's secret.
"""

from __future__ import annotations

import pickle
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

FUNCTION = "run/function"
RESULTS = "run/result/"


def result_key(rank: int) -> str:
    """Where a rank leaves its outcome."""
    return f"{RESULTS}{rank}"


def taken_key(rank: int) -> str:
    """Set when the rank's outcome has arrived, and the rank may end."""
    return f"run/taken/{rank}"


def _cloudpickle() -> Any:
    try:
        import cloudpickle
    except ImportError:
        raise ImportError(
            "horovod.run needs cloudpickle to send functions; install it, for example with 'pip "
            "install cloudpickle' or 'apt install python3-cloudpickle'."
        ) from None
    return cloudpickle


def pack_call(path: List[str], func: Callable[..., Any], args: tuple,
              kwargs: Dict[str, Any]) -> bytes:
    """A call as bytes, with where its modules are found."""
    return pickle.dumps((path, _cloudpickle().dumps((func, args, kwargs))))


def unpack_call(data: bytes) -> Tuple[List[str], Callable[[], Any]]:
    """Where the call's modules are found, and what makes the call."""
    path, call = pickle.loads(data)

    def make() -> Any:
        func, args, kwargs = pickle.loads(call)
        return func(*args, **kwargs)

    return path, make


class Outcome(NamedTuple):
    """How a rank's call ended: with a value, or with an exception and its traceback as text."""

    value: Any
    error: Optional[BaseException]
    trace: str


def pack_value(value: Any) -> bytes:
    """A result as bytes. Raises what pickling it raises."""
    return _cloudpickle().dumps(Outcome(value, None, ""))


def pack_error(error: BaseException) -> bytes:
    """An exception as bytes; of one that cannot travel, its words do."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__package__") == __package__:
        frames = frames.tb_next  # the caller's own code comes first
    trace = "".join(traceback.format_exception(type(error), error, frames))
    try:
        packed: bytes = _cloudpickle().dumps(Outcome(None, error, trace))
        pickle.loads(packed)
        return packed
    except Exception:
        words = RuntimeError(f"{type(error).__name__}: {error}")
        return pickle.dumps(Outcome(None, words, trace))


def unpack(data: bytes) -> Outcome:
    """Decodes the bytes of `pack_value` or `pack_error`."""
    outcome: Outcome = pickle.loads(data)
    return outcome
