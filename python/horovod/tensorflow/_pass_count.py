"""Counts each backward pass in `iterations` of a Keras 2 optimizer if HOROVOD_COUNT_PASSES=1. Otherwise `iterations`
counts the updates only."""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any, Callable, Optional

import tensorflow as tf

from horovod import _basics


def count_of(optimizer: Any, steps: int) -> Optional[Callable[[], Any]]:
    """Returns a function that counts a pass that does not end its step; None if `iterations` counts updates only. Warns
    once about a learning rate schedule with several passes per step."""
    if steps == 1:
        return None
    if os.environ.get("HOROVOD_COUNT_PASSES", "").strip().lower() in ("1", "true", "yes", "on"):
        with tf.init_scope():
            iterations = optimizer.iterations  # older optimizers create the variable at this access
        return lambda: iterations.assign_add(1)
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if any(callable(getattr(inner, name, None)) for name in ("_learning_rate", "learning_rate")):
        _warn_of_schedule(steps)
    return None


@functools.lru_cache(maxsize=None)  # once per process for each number of passes
def _warn_of_schedule(steps: int) -> None:
    if _basics.is_initialized() and _basics.rank() != 0:
        return
    warnings.warn(
        f"DistributedOptimizer: the schedule of the learning rate advances once in {steps} batches, with each "
        f"update (backward_passes_per_step={steps}). Horovod 0.28 advances it with each batch: divide the "
        f"schedule's numbers of steps by {steps}, or set HOROVOD_COUNT_PASSES=1 to count as it does, which also "
        "changes the bias correction of Adam and its kin.",
        stacklevel=4,
    )
