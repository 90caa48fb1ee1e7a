"""Optimizers of Keras and TensorFlow 1 that use gradients reduced over all ranks."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Set, Tuple

import tensorflow as tf

from horovod._ops import Average
from horovod.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import _adasum
from horovod.tensorflow._aggregation import LocalAggregation
from horovod.tensorflow._reduction import Reduction, key_of
from horovod.tensorflow.compression import Compression

_V1: Any = tf.compat.v1.train.Optimizer


class _DistributedOptimizer(_V1):
    """A TensorFlow 1 optimizer around another optimizer: `compute_gradients` reduces."""

    def __init__(
        self,
        optimizer: Any,
        name: Optional[str],
        use_locking: bool,
        reduction: Reduction,
        aggregation: LocalAggregation,
    ) -> None:
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer = optimizer
        self._reduction = reduction
        self._aggregation = aggregation
        self._local: Set[Any] = set()

    @property
    def process_set(self) -> ProcessSet:
        """The ranks over which this optimizer reduces."""
        return self._reduction.process_set

    def register_local_var(self, var: Any) -> None:
        """Keeps the gradients of this variable local to this rank. Call it before `compute_gradients`."""
        self._local.add(key_of(var))

    def _allreduce_grads(self, grads: Sequence[Any], vars: Sequence[Any]) -> List[Any]:
        """Reduces the gradients of a step; scripts replace it."""
        return self._reduction(grads, vars, self._local, optimizer=self._optimizer)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> List[Tuple[Any, Any]]:
        """Returns the optimizer's gradients, reduced over all ranks; all ranks must call it."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if not pairs:
            return pairs
        grads, variables = zip(*pairs)
        reduction: Any = _adasum.keep if self._reduction.takes_steps else self._allreduce_grads
        return list(zip(self._aggregation.reduce(grads, variables, reduction), variables))

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Applies gradients in every `backward_passes_per_step`-th call. Each call adds one to `global_step`."""

        def apply(pairs: List[Tuple[Any, Any]]) -> Any:
            variables = [
                variable for grad, variable in pairs if grad is not None and key_of(variable) not in self._local
            ]
            if self._reduction.takes_steps and variables:
                return _adasum.step(
                    lambda: self._optimizer.apply_gradients(pairs, *args, **kwargs),
                    variables,
                    lambda changes: self._reduction(changes, variables),
                )
            return self._optimizer.apply_gradients(pairs, *args, **kwargs)

        step = kwargs.get("global_step", args[0] if args else None)
        return self._aggregation.apply(apply, list(grads_and_vars), None if step is None else lambda: _count(step))

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.variables(*args, **kwargs)


def _count(global_step: Any) -> Any:
    return tf.compat.v1.assign_add(global_step, tf.ones([], global_step.dtype.base_dtype))


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns an optimizer like `optimizer` that first reduces gradients over all ranks.

    `optimizer`: of Keras, or of TensorFlow 1 (`tf.compat.v1.train`). `backward_passes_per_step`: the number of calls
    whose gradients this rank sums, or averages with `average_aggregated_gradients`, before it reduces and applies them.
    Each variable has its own sum, so passes may have gradients of different variables. `global_step` counts each call.
    The other arguments are those of `DistributedGradientTape`. With op=hvd.Adasum each rank takes its own step, and the
    ranks combine the changes of each variable separately. Raises ValueError for invalid arguments.
    """
    if not isinstance(optimizer, _V1):
        from horovod._keras import facade

        return facade.functions_for(tf.keras)["DistributedOptimizer"](
            optimizer,
            name,
            device_dense,
            device_sparse,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            op,
            backward_passes_per_step,
            average_aggregated_gradients,
            num_groups,
            groups,
            process_set,
            scale_local_gradients,
        )
    reduction = Reduction(
        compression, sparse_as_dense, op, gradient_predivide_factor, groups, process_set, scale_local_gradients
    ).checked(num_groups)
    aggregation = LocalAggregation(backward_passes_per_step, average_aggregated_gradients, sparse_as_dense)
    return _DistributedOptimizer(optimizer, name, use_locking, reduction, aggregation)
