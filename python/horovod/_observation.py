"""Observation of a running job, for every framework: a timeline and metrics."""

from __future__ import annotations

import ctypes
import os
import queue
import threading
from typing import Any, Callable, Dict, Literal, Union, overload

from horovod import _ops
from horovod._library import library

_SCOPES = {"rank": 0, "job": 1, "step": 2}
# The keys of metrics("step") by sample name, each with its factor.
_STEP_KEYS = {
    "horovod_step_seconds": ("step_seconds", 1),
    "horovod_step_waited_ratio": ("waited_share", 1),
    "horovod_step_bytes": ("bytes", 1),
    "horovod_step_late_seconds": ("late_ms", 1000),
}


def start_timeline(file_path: Union[str, os.PathLike], mark_cycles: bool = False) -> None:
    """Starts a timeline of all ranks, a Chrome trace that rank 0 writes. Any rank may call it, as may all ranks.

    A relative path is relative to rank 0's working directory. `mark_cycles`: mark each batching window.
    Raises ValueError before `init`, and HorovodInternalError when another timeline runs or the file
    cannot be written; the job continues.
    """
    _require_init()
    _ask(library().hvd_start_timeline, os.fsencode(os.fspath(file_path)), int(mark_cycles))


def stop_timeline() -> None:
    """Stops the timeline, if one runs, and returns when its file is complete. Any rank may call it.

    Raises ValueError before `init`. `shutdown` stops the timeline too.
    """
    _require_init()
    _ask(library().hvd_stop_timeline)


@overload
def metrics(scope: Literal["step"]) -> Dict[str, float]: ...
@overload
def metrics(scope: Literal["rank", "job"] = "rank") -> str: ...
def metrics(scope: str = "rank") -> Union[str, Dict[str, float]]:
    """Returns counters and histograms since `init` as text in Prometheus's format, or a dictionary.

    `scope`: "rank" for this rank, "job" for all ranks; the other ranks need not call it. The answer comes within a
    second: `horovod_rank_up` is 0 for a rank that has not answered. "step" needs no other rank, and returns means over
    the last 50 training steps of this rank (docs/tracking.md): `step_seconds`, `waited_share` and `bytes`, and under
    horovodrun `late_ms`; an empty dictionary before the first step. Raises ValueError for another scope and before
    `init`.
    """
    if scope not in _SCOPES:
        raise ValueError(f'metrics: scope is {scope!r}; it is "rank", "job" or "step".')
    _require_init()
    needed = ctypes.c_size_t(1 << 16)
    while True:
        # The text may contain longer numbers at the second call.
        size = needed.value + 4096
        text = ctypes.create_string_buffer(size)
        _ask(library().hvd_metrics, _SCOPES[scope], text, size, ctypes.byref(needed))
        if needed.value <= size:
            answer = text.value.decode(errors="replace")
            return _step_values(answer) if scope == "step" else answer


def _step_values(text: str) -> Dict[str, float]:
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition("{")
        if name in _STEP_KEYS:
            key, factor = _STEP_KEYS[name]
            values[key] = float(rest.rpartition(" ")[2]) * factor
    return values


def _ask(function: Callable[..., int], *arguments: Any) -> None:
    """Calls a library function that waits for other ranks.

    On the main thread, another thread makes the call, so that signal handlers can run meanwhile. If a
    handler raises, that thread completes the call and keeps its buffers alive.
    """
    error = ctypes.create_string_buffer(4096)
    answer: queue.SimpleQueue[int] = queue.SimpleQueue()

    def call() -> None:
        answer.put(function(*arguments, error, len(error)))

    if threading.current_thread() is threading.main_thread():
        threading.Thread(target=call, daemon=True).start()
    else:
        call()
    _ops.check(answer.get(), error)


def _require_init() -> None:
    if library().hvd_is_initialized() == 0:
        raise ValueError("Horovod has not been initialized; use hvd.init() first.")
