"""The shared part of `horovod.keras` and `horovod.tensorflow.keras`: optimizers, callbacks and models of
Keras 2, and of Keras 3 on each of its backends. A backend's module imports its own framework only."""

from __future__ import annotations

from typing import Any

from horovod._keras._frameworks import major_of as major_of
from horovod._keras._frameworks import mark_reduced as mark_reduced
from horovod._keras._frameworks import variables_of as variables_of
from horovod._keras.optimizer import distribute, plan_of
from horovod.process_sets import ProcessSet, global_process_set


def create_distributed_optimizer(
    keras: Any,
    optimizer: Any,
    name: Any,
    device_dense: str,
    device_sparse: str,
    compression: Any,
    sparse_as_dense: bool,
    gradient_predivide_factor: float,
    op: int,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """`hvd.DistributedOptimizer` of this Keras, for programs that import it from this module."""
    return distribute(
        keras,
        optimizer,
        name,
        plan_of(
            keras,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            op,
            backward_passes_per_step,
            average_aggregated_gradients,
            0,
            groups,
            process_set,
            scale_local_gradients,
        ),
    )
