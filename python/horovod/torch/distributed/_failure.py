"""Detects the failure of the job for waits outside the runtime: operations of torch's stores."""

from __future__ import annotations

import threading
import time
from typing import Any, Optional

from horovod import _identity, _native, _ops
from horovod.exceptions import HorovodInternalError

# This module watches the job by a receive without a sender: the receive ends with the cause when the job fails, and
# otherwise by its timeout, long before a stall report would name it.
TAG = (1 << 31) - 1
_SECONDS = 30.0
_SLACK = 1.0  # maximum delay of the runtime


class _Watch:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handle: Optional[int] = None
        self._until = 0.0
        _ops.also_forget(self._forget)

    def check(self) -> None:
        if not _identity.is_initialized() or _identity.size() == 1:
            return
        with self._lock:
            if self._handle is not None and _native.poll(self._handle):
                handle, self._handle = self._handle, None
                try:
                    _native.wait(handle)
                except HorovodInternalError:
                    if time.monotonic() < self._until - _SLACK:
                        raise
            if self._handle is None:
                self._until = time.monotonic() + _SECONDS
                nothing = _ops.Tensor(0, 0, int(_ops.Dtype.UINT8), (0,))
                self._handle = _ops.recv(nothing, _ops.ANY_RANK, TAG, 0, _SECONDS, None, lambda: None)

    def _forget(self, process_set: int) -> Any:
        if process_set == -1:  # the runtime has ended
            self._handle = None


_watch = _Watch()


def check() -> None:
    """Raises HorovodInternalError with the cause if the job has failed. Any thread."""
    _watch.check()
