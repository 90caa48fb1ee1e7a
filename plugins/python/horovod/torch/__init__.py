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

from horovod._common import *
from horovod.torch import _ddp as _ddp
from horovod.torch import elastic
from horovod.torch.compression import Compression
from horovod.torch.functions import broadcast_optimizer_state, broadcast_parameters
from horovod.torch.mpi_ops import *
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm
