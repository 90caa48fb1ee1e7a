"""Training: optax's optimizers over all ranks, and the broadcast of initial parameters."""

from __future__ import annotations

from typing import Any, Optional

import jax
import numpy

from horovod import _ops
from horovod._compression import check_choices, check_predivision
from horovod._ops import Average
from horovod.jax._collectives import allreduce
from horovod.jax.compression import Compression, compress_all, decompress_all
from horovod.numpy import _collectives as host
from horovod.process_sets import ProcessSet, global_process_set, id_of


def broadcast_parameters(params: Any, root_rank: int = 0) -> Any:
    """Returns the tree of arrays of the rank `root_rank` on every rank. All ranks must call it, with
    trees of the same structure. Leaves that are neither arrays nor numbers keep their values."""
    leaves, tree = jax.tree_util.tree_flatten(params)
    handles = [
        host.broadcast_async(numpy.asarray(leaf), root_rank, f"parameters.{index}")
        if hasattr(leaf, "dtype") or isinstance(leaf, (bool, int, float)) else None
        for index, leaf in enumerate(leaves)
    ]
    received = iter(_ops.run_all(handle for handle in handles if handle is not None))
    return jax.tree_util.tree_unflatten(tree, [
        leaf if handle is None else jax.numpy.asarray(next(received))
        for leaf, handle in zip(leaves, handles)
    ])


def DistributedOptimizer(optimizer: Any, name: Optional[str] = None, op: int = Average,
                         gradient_predivide_factor: float = 1.0,
                         process_set: ProcessSet = global_process_set,
                         compression: Any = Compression.none) -> Any:
    """Returns an optimizer of optax like `optimizer` whose `update` first reduces this rank's gradients
    over all ranks, as one request; also inside `jax.jit`.

    All ranks must call `update` equally often, with trees of the same structure. `op`: as for
    `allreduce`. `gradient_predivide_factor`: f splits the division of an average in two: by f before
    the sum and by size / f after it; only with Average. `compression`: the type of gradients in
    transfer, `Compression.none`, `.fp16` or `.bf16`. Raises ValueError for invalid arguments.
    """
    if not hasattr(optimizer, "update") or not hasattr(optimizer, "_replace"):
        raise ValueError("DistributedOptimizer takes an optimizer of optax, such as optax.adam(1e-3), not "
                         f"{optimizer!r}, a {type(optimizer).__name__}.")
    check_choices(op, compression)
    check_predivision(gradient_predivide_factor, op)
    id_of(process_set)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        leaves, tree = jax.tree_util.tree_flatten(updates)
        sent, contexts = compress_all(compression, leaves)
        reduced = allreduce(sent, name, op, 1.0 / gradient_predivide_factor,
                            gradient_predivide_factor, process_set)
        leaves = decompress_all(compression, reduced, contexts)
        return optimizer.update(jax.tree_util.tree_unflatten(tree, leaves), state, params, **extra)

    return optimizer._replace(update=update)
