"""Allreduces of a group that start at the end of a backward pass: small buckets of DistributedDataParallel on one host.

On one host the ranks' cores move the data, so an earlier start would only slow the pass.
"""

from __future__ import annotations

import collections
import threading
from typing import Any, Deque

import torch

from horovod.torch.distributed import _calls, _tensor_bytes
from horovod.torch.distributed._calls import Op
from horovod.torch.distributed._work import Work

# The maximum size in bytes of one waiting bucket, and of all buckets: the limits of hvd.DistributedOptimizer.
_MOST_BYTES = 4 << 20
_MOST_BYTES_OF_ALL = 16 << 20


class Postponed(Work):
    """An in-place allreduce that starts when a thread requests its handle."""

    _started: Any = None
    _failure: Any = None

    def __init__(self, calls: Calls, words: Any, group: int, op: int, bucket: torch.Tensor, seconds: float) -> None:
        super().__init__(words, None, [bucket], seconds)
        self._calls, self._group, self._op, self._bucket = calls, group, op, bucket

    def start(self) -> None:
        if self._started is not None:
            return
        bucket = self._bucket
        try:
            handle = _calls.submit(
                self._group, Op.ALLREDUCE, bucket, bucket.numel(), bucket, bucket, self._seconds, reduce_op=self._op
            )
            self._started, self._bucket = [handle], None
        except Exception as error:  # waiting callers get the error of the job
            self._started, self._failure = [], error
        except BaseException:  # a signal handler has raised, so the result must not look complete
            self._started, self._failure = [], RuntimeError("horovod: the call was interrupted")
            raise

    @property
    def _handles(self) -> Any:
        if self._started is None:
            self._calls.start()
        if self._failure is not None and not self._is_done:
            raise self._failure
        return self._started

    @_handles.setter
    def _handles(self, handles: Any) -> None:
        self._started = handles


class Calls:
    """The calls of one group that have not started; these calls start in order, before any later call."""

    def __init__(self) -> None:
        self.waiting: Deque[Postponed] = collections.deque()
        self._bytes = 0
        self._lock = threading.RLock()

    def may_take(self, bucket: torch.Tensor) -> bool:
        """Returns whether the bucket may wait for the end of the backward pass."""
        size = _tensor_bytes.size_of(bucket)
        return size <= _MOST_BYTES and self._bytes + size <= _MOST_BYTES_OF_ALL

    def add(self, words: Any, group: int, op: int, bucket: torch.Tensor, seconds: float) -> Postponed:
        work = Postponed(self, words, group, op, bucket, seconds)
        with self._lock:
            self._bytes += _tensor_bytes.size_of(bucket)
            self.waiting.append(work)
        return work

    def start(self) -> None:
        with self._lock:
            self._bytes = 0
            # A call stays in `waiting` while it starts, so that other threads order their calls behind it.
            while self.waiting:
                try:
                    self.waiting[0].start()
                finally:
                    self.waiting.popleft()
