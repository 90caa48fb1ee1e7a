"""Gradients of several backward passes on one rank, for training loops that call the reduction themselves."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Set

import tensorflow as tf

from horovod.process_sets import ProcessSet, global_process_set, id_of
from horovod.tensorflow._aggregation import LocalAggregation
from horovod.tensorflow._collectives import size_op  # noqa: F401, for scripts
from horovod.tensorflow._reduction import Reduction, key_of

__all__ = [
    "LocalGradientAggregationHelper",
    "LocalGradientAggregationHelperEager",
    "apply_op_to_not_none_tensors",
    "get_not_none_from_list",
]


def get_not_none_from_list(tensor_list: Sequence[Any]) -> List[Any]:
    """Returns the tensors that are not None."""
    return [tensor for tensor in tensor_list if tensor is not None]


def apply_op_to_not_none_tensors(tensor_op: Callable[..., Any], tensors: Sequence[Any], *args: Any) -> List[Any]:
    """Returns tensor_op(tensor, *args) for each tensor, and None for None."""
    return [None if tensor is None else tensor_op(tensor, *args) for tensor in tensors]


class LocalGradientAggregationHelper:
    """Sums gradients in local variables, and reduces the sums in a step's last pass.

    `allreduce_func`: takes a list of gradients and a list of their variables, and returns the gradients reduced over
    all ranks. `rank`, `optimizer_type` and `name` are accepted for existing scripts. Raises ValueError unless
    `backward_passes_per_step` is a number above 0.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., Sequence[Any]],
        sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False,
        rank: Optional[int] = None,
        optimizer_type: Any = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        id_of(process_set)
        self._aggregation = LocalAggregation(backward_passes_per_step, average_aggregated_gradients, sparse_as_dense)
        self._allreduce = allreduce_func
        self._dense = sparse_as_dense
        self._own = Reduction(process_set=process_set, scale_local_gradients=scale_local_gradients)
        self._local: Set[Any] = set()

    def register_local_var(self, var: Any) -> None:
        """Keeps the gradients of this variable local to this rank."""
        self._local.add(key_of(var))

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> List[Any]:
        """Returns the gradients reduced over all ranks in a step's last pass; in other passes, the unreduced sums.

        `grads`: tensors, IndexedSlices or None, one for each of `vars`. Each variable has its own sum, and in the last
        pass None becomes the sum of earlier passes. All ranks must call it equally often."""
        return self._aggregation.reduce(grads, vars, self._reduce)

    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], optimizer: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Calls the closure in a step's last pass only. Raises ValueError if a variable had a gradient in an earlier
        pass but not in the last call of `compute_gradients`."""
        return self._aggregation.apply(lambda pairs: apply_grads_closure())

    def _reduce(self, grads: List[Any], variables: List[Any]) -> List[Any]:
        shared = [
            i
            for i, (grad, variable) in enumerate(zip(grads, variables))
            if grad is not None and key_of(variable) not in self._local
        ]
        results = self._own(grads, variables, {key_of(variable) for variable in variables})
        sent = [self._as_sent(grads[i]) for i in shared]
        reduced = self._allreduce(sent, [variables[i] for i in shared])
        for i, grad in zip(shared, reduced):
            results[i] = grad
        return results

    def _as_sent(self, grad: Any) -> Any:
        is_sparse = self._dense and isinstance(grad, tf.IndexedSlices)
        return tf.convert_to_tensor(grad) if is_sparse else grad


class LocalGradientAggregationHelperEager(LocalGradientAggregationHelper):
    """The same class, with the arguments in the order of TensorFlow 2."""

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., Sequence[Any]],
        sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        super().__init__(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
