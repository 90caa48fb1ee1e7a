"""Horovod for PyTorch: ``import horovod.torch as hvd``.

Works with torch 1.13 and later, on tensors in host memory. Signatures are Horovod's.
"""

from horovod._framework import need as _need

_torch = _need(
    "torch",
    "PyTorch",
    "horovod.torch",
    "1.13",
    "install it, for example with 'pip install torch' or 'apt install python3-torch'",
)

from horovod import _common
from horovod._basics import *
from horovod._common import *
from horovod.torch import _ddp as _ddp
from horovod.torch import elastic, mpi_ops
from horovod.torch._allreduce import *
from horovod.torch._broadcast import *
from horovod.torch._rows import *
from horovod.torch.compression import Compression
from horovod.torch.functions import broadcast_optimizer_state, broadcast_parameters
from horovod.torch.mpi_ops import *
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "SyncBatchNorm",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
]
__all__ += _common.__all__
__all__ += mpi_ops.__all__
