"""Horovod for PyTorch: ``import horovod.torch as hvd``.

Works with torch 1.13 and later, on tensors in host memory. Signatures are Horovod's.
"""

try:
    import torch as _torch
except ImportError as _error:
    raise ImportError(
        f"horovod.torch needs PyTorch, which this Python cannot import ({_error}); install it, "
        "for example with 'pip install torch' or 'apt install python3-torch'."
    ) from None

from horovod import __version__
from horovod._library import library as _library

_library()  # a missing libhorovod.so is an ImportError here, not a surprise later

from horovod._observation import metrics, start_timeline, stop_timeline
from horovod.exceptions import HorovodInternalError
from horovod.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.torch.compression import Compression
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.mpi_ops import *
from horovod.torch.optimizer import DistributedOptimizer
