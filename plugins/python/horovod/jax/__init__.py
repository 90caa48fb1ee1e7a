"""Horovod for JAX: ``import horovod.jax as hvd``.

Collectives on arrays and trees of arrays, inside `jax.jit` and `jax.grad` or not, and
`DistributedOptimizer` for the optimizers of optax.
"""

from horovod._framework import need as _need

_jax = _need("jax", "JAX", "horovod.jax", "0.4", "install it, for example with 'pip install jax'")

from horovod import _common
from horovod._common import *
from horovod.jax import elastic
from horovod.jax._collectives import allgather, allreduce, alltoall, broadcast, reducescatter
from horovod.jax._errors import horovod_errors
from horovod.jax.compression import Compression
from horovod.jax._optimizer import DistributedOptimizer, broadcast_parameters

__all__ = [
    "Compression", "DistributedOptimizer", "allgather", "allreduce", "alltoall", "broadcast",
    "broadcast_parameters", "elastic", "horovod_errors", "reducescatter",
]
__all__ += _common.__all__
