"""Horovod for numpy: ``import horovod.numpy as hvd``.

Collectives, process sets and objects for programs with numpy arrays, or with arrays that numpy can convert. Names and
signatures are the same as for other frameworks.
"""

from horovod._framework import need as _need

_numpy = _need(
    "numpy",
    "numpy",
    "horovod.numpy",
    "1.17",
    "install it, for example with 'pip install numpy' or 'apt install python3-numpy'",
)

from horovod import _common
from horovod._basics import *
from horovod._common import *
from horovod._frontend import poll
from horovod.numpy import _collectives
from horovod.numpy._collectives import *

__all__ = ["poll"]
__all__ += _common.__all__
__all__ += _collectives.__all__
