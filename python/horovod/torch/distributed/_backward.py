"""Completes the collectives that DistributedDataParallel starts during a backward pass (its `Work` objects).

DistributedDataParallel waits for the futures of these works at the end of the pass only. The thread that runs the pass
therefore completes the works then, in the order of their start: no other thread has to wake up, or competes for the
core, during the pass.
"""

from __future__ import annotations

import collections
import sys
import threading
from typing import Any, Deque

import torch

# The functions that run a backward pass.
_MODULES = (vars(torch.autograd), vars(torch.autograd.graph))
_engine: Any = torch.autograd.Variable._execution_engine


class _Works(threading.local):
    has_ended = False  # a pass has ended since the last call of takes_step()

    def __init__(self) -> None:
        self.open: Deque[Any] = collections.deque()


_works = _Works()


def is_caller(depth: int) -> bool:
    """Returns whether C++ code has called the function at this stack depth from a backward pass."""
    try:
        called_from = sys._getframe(depth).f_globals
    except ValueError:  # a thread without Python frames called this function
        return False
    return any(called_from is module for module in _MODULES)


def take(work: Any) -> bool:
    """Queues the work for the end of this thread's backward pass. Returns False if no C++ code runs such a pass: then
    the caller, `Work.get_future`, completes the work earlier, because Python code (a communication hook) needs it."""
    if not is_caller(3):
        return False
    try:
        # The callback of DistributedDataParallel comes after the callback of its last bucket.
        _engine.queue_callback(_complete)
    except RuntimeError:  # no pass runs
        return False
    _works.open.append(work)
    return True


def takes_step() -> bool:
    """Returns whether the thread's next call is the first one after a backward pass, and therefore begins a training
    step. The runtime cannot know this, because DistributedDataParallel gives its buckets no names."""
    if not _works.has_ended:
        return False
    _works.has_ended = False
    return True


def _complete() -> None:
    works = _works.open
    try:
        while works:
            work = works.popleft()
            work.complete()
            work.release()  # frees the bucket with its module
            _works.has_ended = True
    finally:  # also if a signal handler has raised
        while works:
            works.popleft()._hand_over()
