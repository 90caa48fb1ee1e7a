"""Horovod for Apache MXNet: ``import horovod.mxnet as hvd``.

Works with MXNet 1.9 on arrays in host memory, and on arrays of a GPU by copies in host memory. Signatures are
Horovod's. allreduce, broadcast, trainers and optimizers return at once: MXNet's engine orders them with the operations
that write and read the arrays. After a failure, a read of the result raises MXNetError. The other collectives return
with the result.
"""

from horovod._framework import need as _need

# If numpy is too new, MXNet's own code raises AttributeError.
_mxnet = _need(
    "mxnet",
    "MXNet",
    "horovod.mxnet",
    "1.9",
    "install it in an environment of its own: pip install 'mxnet==1.9.1' 'numpy<1.24'",
)

from horovod import _common
from horovod._basics import *
from horovod._common import *
from horovod.mxnet import _collectives, functions as functions, mpi_ops as mpi_ops
from horovod.mxnet._collectives import *
from horovod.mxnet._training import (
    DistributedOptimizer,
    DistributedTrainer,
    broadcast_parameters,
)
from horovod.mxnet.compression import Compression

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "broadcast_parameters",
]
__all__ += _common.__all__
__all__ += _collectives.__all__
