"""Chooses for each process set whether tensors on GPUs go through a backend such as NCCL, or through host memory.

Used only if HOROVOD_GPU_OPERATIONS is not set. The first tensor on a GPU starts a trial of the backend, which begins
once each rank of the set has such a tensor. Until a rank knows the outcome, its tensors go through host memory. Only a
broadcast of a model waits for the trial, and ranks may learn the outcome at different times: the runtime matches copies
in host memory (_ops.STAGED) with tensors on GPUs.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any, Dict, Optional

from horovod import _native, _ops
from horovod._ops import Dtype, Kind
from horovod.exceptions import HorovodInternalError
from horovod.process_sets import registered

_SIZE = 512  # bytes of the text with the reason why a rank cannot use the backend
LIMIT = 20.0  # limit in seconds: a rank without tensors on GPUs never begins the trial


class Trial:
    """The trial of one process set. `device`: the GPU of this rank. The broadcast of a trial moves no data; the ranks
    then exchange its outcomes."""

    def __init__(self, process_set: int, device: int) -> None:
        self.device = device
        self._process_set = process_set
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self._succeeded: Optional[bool] = None
        self._text = ctypes.create_string_buffer(_SIZE)
        ranks = registered(process_set).ranks or [0]
        self._handle: Optional[int] = self._submit(
            Kind.BROADCAST, (_SIZE,), ctypes.addressof(self._text), device, self._exchange, root_rank=ranks[0]
        )

    def _submit(self, kind: Kind, shape: tuple, output: int, device: int, finish: Any, **arguments: Any) -> int:
        tensor = _ops.Tensor(ctypes.addressof(self._text), output, Dtype.UINT8, shape)
        return _ops.submit(
            kind,
            f"horovod.{kind.name.lower()}.trial_of_gpus",
            [tensor],
            keep=self._text,
            finish=finish,
            process_set=self._process_set,
            place=_ops.Place(device, 0, 0, flags=_ops.TRIAL),
            **arguments,
        )

    def _exchange(self, handle: int) -> None:
        self._handle = self._submit(Kind.ALLGATHER, (1, _SIZE), 0, -1, self._conclude)

    def _conclude(self, handle: int) -> None:
        output = _ops.output(handle)
        texts = ctypes.string_at(output.address, output.shape[0] * _SIZE)
        self._succeeded = not texts.strip(b"\0")

    def outcome(self, waits: bool = False) -> Optional[bool]:
        """Returns whether the set's tensors on GPUs go through the backend; None while this rank does not know the
        outcome. With `waits`, waits for the outcome until LIMIT seconds after the start of the trial, without blocking
        other threads."""
        if self._succeeded is not None or not self._lock.acquire(blocking=waits):
            return self._succeeded
        end = self._begin + LIMIT if waits else 0.0
        try:
            while self._handle is not None and (_ops.poll(self._handle) or time.monotonic() < end):
                handle, self._handle = self._handle, None
                try:
                    _native.wait_for(handle, max(0.0, end - time.monotonic()))
                except TimeoutError:
                    self._handle = handle
                except ValueError:
                    self._succeeded = False  # a rank has joined: all other values are equal
                except HorovodInternalError:
                    pass  # the job has failed
        finally:
            self._lock.release()
        return self._succeeded

    def abandon(self) -> None:
        if self._handle is not None:
            _native.abandon(self._handle)


_trials: Dict[int, Trial] = {}
_lock = threading.Lock()


def trial_of(process_set: int, device: int) -> Trial:
    """Returns the trial of the process set. The first call of a rank begins it."""
    trial = _trials.get(process_set)
    if trial is None:
        with _lock:
            trial = _trials.get(process_set)
            if trial is None:
                trial = _trials[process_set] = Trial(process_set, device)
    return trial


def _forget(process_set: int) -> None:
    with _lock:
        gone = [*_trials] if process_set == -1 else [process_set]
        for trial in filter(None, (_trials.pop(one, None) for one in gone)):
            trial.abandon()


_ops.also_forget(_forget)
