"""The barrier that names missing ranks, through the store of a group."""

from __future__ import annotations

import time
from typing import Any, List

from horovod.torch.distributed import _failure

_PAUSE = 0.001  # seconds between two polls; a wait with a timeout would break the connection to the store of torch 1.13


def _comes(store: Any, key: str, until: float) -> bool:
    """Returns whether another rank sets the key before `until`."""
    while store.add(key, 0) == 0:
        if time.monotonic() >= until:
            return False
        _failure.check()
        time.sleep(_PAUSE)
    return True


def wait(store: Any, number: int, rank: int, size: int, seconds: float, names_all: bool) -> None:
    """Returns once all ranks have called it. Raises RuntimeError after `seconds`, on rank 0 with the missing ranks."""
    until = time.monotonic() + seconds
    prefix = f"monitored_barrier {number} "
    if rank != 0:
        store.add(f"{prefix}{rank}", 1)
        if _comes(store, f"{prefix}all", until):
            return
        raise RuntimeError(
            f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for "
            "send/recv from rank 0. Please check rank 0 logs for faulty rank."
        )
    missing: List[int] = []
    for other in range(1, size):
        if time.monotonic() >= until and not missing:
            raise RuntimeError(f"Rank 0 timed out in monitoredBarrier after {round(seconds * 1000)} ms.")
        if not _comes(store, f"{prefix}{other}", until):
            missing.append(other)
            if not names_all:
                break
    if missing:
        raise RuntimeError(
            f"[Rank 0]: Rank{'s' if len(missing) > 1 or names_all else ''} "
            f"{', '.join(map(str, missing))} failed to pass monitoredBarrier in "
            f"{round(seconds * 1000)} ms"
        )
    store.add(f"{prefix}all", 1)
