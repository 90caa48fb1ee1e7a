"""Horovod for JAX: ``import horovod.jax as hvd``.

Collectives on arrays and trees of arrays, inside `jax.jit` and `jax.grad` or not, and
`DistributedOptimizer` for the optimizers of optax.

Ranks match collectives by name. A call without `name` inside `jax.jit` is numbered in its program, as
`grouped_allreduce.jit_step.2`. An additional compilation on one rank, for a smaller last batch or by `jax.eval_shape`,
changes no name. Collectives run in the order in which the function calls them, one after the other, so all ranks must
call them in one order, even with names; a helper under `jax.jit` or `jax.checkpoint` may be called several times. A
call waits for the one before it, and a tree is one request: with a call for each of 16 gradients of 1 KiB, a step takes
4 to 15 % longer than with `hvd.allreduce(grads)`. Programs have an order too: JAX begins a program when the one before
it has ended. Two ranks that run two programs in different order therefore wait for each other, even if the programs are
independent and all their calls are named; the report of the stall names the programs. If a condition such as
`jax.lax.cond` contains a collective, all ranks must also take the same branch.

A result has the type of the argument. Without jax_enable_x64, JAX has no 64-bit types: such a result is a numpy array,
a number of Python gives a number of Python, and OverflowError is raised where JAX would cut the value. `jax.vmap` of a
reduction or broadcast is one collective on the whole batch. `jax.pmap`, `jax.shard_map` and sharded arrays on several
devices of a process are refused: start one rank for each device.

After this import, `jax.distributed.initialize()` needs no arguments under `horovodrun`.
"""

from horovod._framework import need as _need

_jax = _need("jax", "JAX", "horovod.jax", "0.4", "install it, for example with 'pip install jax'")

from horovod import _common
from horovod._basics import *
from horovod._common import *
from horovod.jax import _cluster, elastic
from horovod.jax._collectives import allgather, allreduce, alltoall, broadcast, reducescatter
from horovod.jax._errors import horovod_errors
from horovod.jax.compression import Compression
from horovod.jax._optimizer import DistributedOptimizer, broadcast_parameters

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_parameters",
    "elastic",
    "horovod_errors",
    "reducescatter",
]
__all__ += _common.__all__

_cluster.register()
