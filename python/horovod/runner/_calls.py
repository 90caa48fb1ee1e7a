"""Messages between `horovod.run` and its ranks: the function to the ranks, and results or errors back.

The messages are pickles, which run code when they are read. This module reads messages only from the job's store, which
signs every response with the job's secret. All ranks have this secret, so each rank also signs its result
with a key of its own.
"""

from __future__ import annotations

import hmac
import os
import pickle
import platform
import socket
import sys
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

FUNCTION = "run/function"
RESULTS = "run/result/"
TAKEN = "run/taken/"


def result_key(rank: int) -> str:
    """Returns the key of a rank's outcome."""
    return f"{RESULTS}{rank}"


def signing_key(secret: bytes, rank: str) -> bytes:
    """Returns the key with which a rank signs its outcome, derived as in launcher/reach/host_jobs.cpp."""
    return hmac.new(secret, f"horovod.run result 1\n{rank}".encode(), "sha256").digest()


def taken_key(rank: int) -> str:
    """Returns the key that the caller sets when it has received the rank's outcome and the rank may end."""
    return f"{TAKEN}{rank}"


def cloudpickle() -> Any:
    """Returns the module cloudpickle. Raises ImportError with one sentence if it is missing."""
    try:
        import cloudpickle as found
    except ImportError:
        raise ImportError(
            "horovod.run needs cloudpickle to send functions; install it, for example with 'pip "
            "install cloudpickle' or 'apt install python3-cloudpickle'."
        ) from None
    return found


def _python() -> str:
    return "{} {}.{}".format(platform.python_implementation(), *sys.version_info)


def pack_call(path: List[str], func: Callable[..., Any], args: tuple, kwargs: Dict[str, Any]) -> bytes:
    """Returns a call as bytes, with the import path of its modules."""
    library = os.path.dirname(os.__file__)
    standard = (library, os.path.join(os.path.dirname(library), "python{}{}.zip".format(*sys.version_info)))
    first = next((index for index, place in enumerate(path) if place in standard), 0)
    return pickle.dumps((_python(), path, first, cloudpickle().dumps((func, args, kwargs))))


def import_path(path: List[str], first: int, own: List[str]) -> List[str]:
    """Returns the import path of a rank, on which each name finds the same module as in the caller. `path`: the
    caller's path, whose `first` entries precede its standard library; `own`: the rank's path."""
    # With -m, Python puts the working folder first; the caller's path has it only if -m started the caller too.
    begin = 1 if own and own[0] == os.getcwd() else 0
    return list(dict.fromkeys([*path[:first], *own[begin:], *path[first:], *own[:begin]]))


def unpack_call(data: bytes) -> Tuple[List[str], int, Callable[[], Any]]:
    """Returns the caller's import path, the number of its entries before the standard library, and a function that
    makes the call. Raises RuntimeError if the caller has another version of Python: its compiled code may mean
    something else in this version."""
    python, path, first, call = pickle.loads(data)
    if python != _python():
        raise RuntimeError(
            f"horovod.run: the caller has {python}, and {sys.executable} on host {socket.gethostname()} is "
            f"{_python()}: functions can be sent to equal versions only; give an executable of the caller's version."
        )

    def make() -> Any:
        func, args, kwargs = pickle.loads(call)
        return func(*args, **kwargs)

    return path, first, make


class Outcome(NamedTuple):
    """The outcome of a rank's call: a value, or an exception and its traceback as text."""

    value: Any
    error: Optional[BaseException]
    trace: str
    # The rank and generation at the end of the call, in an elastic job.
    rank: int = -1
    generation: int = 0
    # The exception. If the caller lacks its class, `error` has the exception's message.
    pickled: bytes = b""

    def rank_of(self, process: int) -> int:
        """Returns the rank. `process`: the rank at the start of its process."""
        return self.rank if self.rank >= 0 else process


def _place() -> Tuple[int, int]:
    """Returns this rank and its generation in an elastic job, from the variables that hvd.init has set."""
    if "HOROVOD_ELASTIC_PROCESS" not in os.environ:
        return -1, 0
    return int(os.environ["HOROVOD_RANK"]), int(os.environ.get("HOROVOD_GENERATION", 0))


def pack_value(value: Any) -> bytes:
    """Returns a result as bytes. Raises the errors of pickle."""
    return cloudpickle().dumps(Outcome(value, None, "", *_place()))


def pack_error(error: BaseException, remark: str = "") -> bytes:
    """Returns an exception as bytes; only its text if the exception cannot be pickled. `remark`: lines before the
    traceback."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__package__") == __package__:
        frames = frames.tb_next  # skip this package's frames
    trace = remark + "".join(traceback.format_exception(type(error), error, frames))
    pickled = b""
    try:
        pickled = cloudpickle().dumps(error)
        pickle.loads(pickled)  # unpickling fails for exceptions whose arguments are not only their message
    except Exception:
        pickled = b""
    words = RuntimeError(f"{type(error).__name__}: {error}")
    return pickle.dumps(Outcome(None, words, trace, *_place(), pickled))


def sign(packed: bytes, key: bytes) -> bytes:
    """Returns the bytes of `pack_value` or `pack_error` with the rank's signature."""
    return hmac.new(key, packed, "sha256").digest() + packed


def unpack(message: bytes, key: bytes) -> Optional[Outcome]:
    """Decodes the bytes of `sign`. Returns None without unpickling if another key made the signature. Raises the errors
    of pickle for a value."""
    signature, packed = message[:32], memoryview(message)[32:]
    if not hmac.compare_digest(hmac.new(key, packed, "sha256").digest(), signature):
        return None
    outcome: Outcome = pickle.loads(packed)
    if not outcome.pickled:
        return outcome
    try:
        return outcome._replace(error=pickle.loads(outcome.pickled))
    except Exception:
        return outcome
