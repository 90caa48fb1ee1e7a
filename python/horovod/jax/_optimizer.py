"""Training: optax's optimizers over all ranks, and the broadcast of initial parameters."""

from __future__ import annotations

from typing import Any, Optional

import jax
import numpy

from horovod import _basics, _identity, _ops, _replicas
from horovod._compression import check_choices, check_predivision
from horovod._ops import Average
from horovod.jax import _dropped, _values
from horovod.jax._collectives import allreduce
from horovod.jax._replicas import ReplicaCheck
from horovod.jax._wrappers import deciding_wrapper
from horovod.jax.compression import Compression, compress_all, decompress_all
from horovod.numpy import _collectives as host
from horovod.process_sets import ProcessSet, global_process_set, id_of


def broadcast_parameters(params: Any, root_rank: int = 0) -> Any:
    """Returns the tree of arrays of the rank `root_rank` on every rank. All ranks must call it, with trees of the same
    structure. A leaf keeps its type: a JAX array, a key of `jax.random.key`, a numpy array, or a number of Python.
    Leaves that are neither arrays nor numbers keep their values. A program that drops the result gets a warning at its
    next collective."""
    _dropped.check()
    leaves, tree = jax.tree_util.tree_flatten(params)
    sent = [
        _sent(leaf, f"parameters.{index}")
        if hasattr(leaf, "dtype") or isinstance(leaf, (bool, int, float, complex))
        else None
        for index, leaf in enumerate(leaves)
    ]
    handles = [
        None if array is None else host.broadcast_async(array, root_rank, f"parameters.{index}")
        for index, array in enumerate(sent)
    ]
    received = iter(_ops.run_all(handle for handle in handles if handle is not None))
    results = [leaf if handle is None else _received(next(received), leaf) for leaf, handle in zip(leaves, handles)]
    # One rank warns for all.
    if _basics.size() > 1 and _basics.rank() == (1 if root_rank == 0 else 0):
        _dropped.note(leaves, results)
    _replicas.note_broadcast()
    return jax.tree_util.tree_unflatten(tree, results)


def _sent(leaf: Any, what: str) -> numpy.ndarray:
    return _values.on_host(jax.random.key_data(leaf) if _values.is_key(leaf) else leaf, what)


def _received(result: numpy.ndarray, leaf: Any) -> Any:
    """Returns the result as the same kind of value as the leaf."""
    if _values.is_key(leaf):
        return jax.random.wrap_key_data(jax.numpy.asarray(result), impl=jax.random.key_impl(leaf))
    if isinstance(leaf, numpy.ndarray):
        return result
    if isinstance(leaf, numpy.generic):
        return result[()]
    return _values.like(result, leaf)


def _reduces(process_set: ProcessSet) -> bool:
    """Returns whether other ranks may take part in this call of `update`. Raises NotImplementedError if it would run on
    a part of the ranks only."""
    if not process_set.included() or (process_set.size() == 1 and not _identity.is_elastic()):
        return False
    wrapper = deciding_wrapper()
    if wrapper is not None:
        raise NotImplementedError(
            f"DistributedOptimizer: {wrapper.name} around it decides by the gradients of this rank alone whether to "
            "update, so some ranks would reduce and others not; put it inside, where it sees the reduced gradients, "
            f"which are equal on all ranks: hvd.DistributedOptimizer({wrapper.inside})."
        )
    return True


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: Any = Compression.none,
) -> Any:
    """Returns an optimizer of optax like `optimizer` whose `update` first reduces this rank's gradients
    over all ranks, as one request; also inside `jax.jit`.

    All ranks must call `update` equally often, with trees of the same structure. `op`: as for `allreduce`. Without
    `name`, requests are numbered like those of `allreduce`. `gradient_predivide_factor`: f splits the division of an
    average in two: by f before the sum and by size / f after it; only with Average. `compression`: the type of
    gradients in transfer, `Compression.none`, `.fp16` or `.bf16`. Raises ValueError for invalid arguments.

    Put an optax wrapper that skips updates depending on the gradients inside, where gradients are equal on all ranks:
    `hvd.DistributedOptimizer(optax.apply_if_finite(...))`. Around this optimizer, `optax.apply_if_finite`, and
    `optax.MultiSteps` with a `should_skip_update_fn`, are refused: `update` raises NotImplementedError.
    `optax.MultiSteps` without one may be around it or inside. In your own condition, such as `jax.lax.cond`, all ranks
    must take the same branch.
    """
    if hasattr(optimizer, "gradient_transformation"):  # optax.MultiSteps
        optimizer = optimizer.gradient_transformation()
    if not hasattr(optimizer, "update") or not hasattr(optimizer, "_replace"):
        raise ValueError(
            "DistributedOptimizer takes an optimizer of optax, such as optax.adam(1e-3), not "
            f"{optimizer!r}, a {type(optimizer).__name__}."
        )
    check_choices(op, compression)
    check_predivision(gradient_predivide_factor, op)
    id_of(process_set)
    replicas = ReplicaCheck(process_set)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        leaves, tree = jax.tree_util.tree_flatten(updates)
        if _reduces(process_set):
            replicas.before_update(leaves, params)
        sent, contexts = compress_all(compression, leaves)
        reduced = allreduce(sent, name, op, 1.0 / gradient_predivide_factor, gradient_predivide_factor, process_set)
        leaves = decompress_all(compression, reduced, contexts)
        return optimizer.update(jax.tree_util.tree_unflatten(tree, leaves), state, params, **extra)

    return optimizer._replace(update=update)
