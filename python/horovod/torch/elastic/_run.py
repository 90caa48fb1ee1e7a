"""`hvd.elastic.run` for PyTorch."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any, Callable, Iterator

from horovod import _basics, _elastic
from horovod.exceptions import HorovodInternalError, HostsUpdatedInterrupt


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Raises the failure of the job if C++ code, such as DDP, has turned it into another exception."""
    try:
        yield
    except (HorovodInternalError, HostsUpdatedInterrupt):
        raise
    except RuntimeError:
        failure = sys.modules.get("horovod.torch.distributed._failure")
        if failure is not None:  # the program uses a group of torch.distributed
            failure.check()
        raise


@functools.wraps(_elastic.run_fn)  # copies the documentation
def run_fn(func: Callable[..., Any], reset: Callable[[], Any]) -> Callable[..., Any]:
    """Implements `run`. `reset()` restarts Horovod by `hvd.init()`, and runs what the program has added."""
    return _elastic.run_with(func, reset, _errors)


@functools.wraps(_elastic.run)
def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates as `horovod._elastic.run` does, and detects a failure of the job behind an error of DDP's C++ code."""
    return run_fn(func, _basics.init)
