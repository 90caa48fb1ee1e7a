"""Horovod for numpy: ``import horovod.numpy as hvd``.

For everybody whose arrays are numpy's, or can be: collectives, process sets, objects. Names and
signatures are those that Horovod has for other frameworks.
"""

try:
    import numpy as _numpy
except ImportError as _error:
    raise ImportError(
        f"horovod.numpy needs numpy, which this Python cannot import ({_error}); install it, for "
        "example with 'pip install numpy' or 'apt install python3-numpy'."
    ) from None

from horovod._common import *
from horovod._frontend import poll
from horovod.numpy._collectives import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_async,
    grouped_reducescatter,
    reducescatter,
    reducescatter_async,
    synchronize,
)
