"""Horovod: distributed training by allreduce.

This module imports no framework and opens no library. Import the one you train with, such as
``import horovod.torch as hvd``. `horovod.run` starts jobs from Python.
"""

from typing import TYPE_CHECKING

from horovod._version import __version__

if TYPE_CHECKING:
    from horovod.runner import run

__all__ = ["__version__", "run"]


def __getattr__(name: str) -> object:
    if name == "run":
        from horovod.runner import run

        globals()["run"] = run
        return run
    raise AttributeError(f"module 'horovod' has no attribute '{name}'")
