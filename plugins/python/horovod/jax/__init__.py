"""Horovod for JAX: ``import horovod.jax as hvd``.

Collectives on arrays and trees of arrays, inside `jax.jit` and `jax.grad` or not, and
`DistributedOptimizer` for the optimizers of optax.
"""

try:
    import jax as _jax
except ImportError as _error:
    raise ImportError(
        f"horovod.jax needs JAX, which this Python cannot import ({_error}); install it, for "
        "example with 'pip install jax'."
    ) from None

from horovod._common import *
from horovod.jax import elastic
from horovod.jax._collectives import allgather, allreduce, alltoall, broadcast, reducescatter
from horovod.jax._errors import horovod_errors
from horovod.jax._optimizer import DistributedOptimizer, broadcast_parameters
