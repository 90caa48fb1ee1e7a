"""Horovod: distributed training by allreduce.

This module imports no framework and opens no library. Import the one you train with, such as
``import horovod.torch as hvd``.
"""

from horovod._version import __version__

__all__ = ["__version__"]
