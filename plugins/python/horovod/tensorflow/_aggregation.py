"""Gradients of several backward passes, added up before they travel."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import tensorflow as tf


class LocalAggregation:
    """Sums of gradients in variables of this rank; `reduce` and then `apply` are called once for each
    backward pass. With one pass per step it keeps nothing."""

    def __init__(self, steps: int, average: bool = False) -> None:
        if not isinstance(steps, int) or steps < 1:
            raise ValueError(f"backward_passes_per_step must be a number above 0, not {steps}.")
        self.steps = steps
        self._average = average
        self._sums: Optional[List[Any]] = None
        self._passes: Any = None
        self._is_last: Any = None

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any],
               reduction: Callable[..., List[Any]], *more: Any) -> List[Any]:
        """reduction(sums, variables, *more) in a step's last pass; in others what nobody uses."""
        if self.steps == 1:
            return reduction(list(grads), list(variables), *more)
        there = [i for i, grad in enumerate(grads) if grad is not None]
        dense = [tf.convert_to_tensor(grads[i]) for i in there]
        self._make([variables[i] for i in there], dense)
        added = [total.assign_add(grad) for total, grad in zip(self._sums, dense)]
        with tf.control_dependencies(_as_operations(added)):
            passes = self._passes.assign_add(1)
            with tf.control_dependencies(_as_operations([passes])):
                passes = tf.identity(passes)
        self._is_last = tf.equal(passes % self.steps, 0)

        def sums() -> List[Any]:
            with tf.control_dependencies(_as_operations([passes])):
                values = [total.read_value() for total in self._sums]
            return [value / self.steps for value in values] if self._average else values

        chosen = [variables[i] for i in there]
        reduced = _choose(self._is_last, lambda: reduction(sums(), chosen, *more), sums)
        results = list(grads)
        for i, tensor in zip(there, reduced):
            results[i] = tensor
        return results

    def apply(self, function: Callable[[], Any]) -> Any:
        """function() in a step's last pass, after which the sums are zero again."""
        if self.steps == 1:
            return function()
        if not tf.executing_eagerly():
            return tf.cond(self._is_last, lambda: self._applied(function), tf.no_op)
        return self._applied(function) if bool(self._is_last) else None

    def _applied(self, function: Callable[[], Any]) -> Any:
        result = function()
        operations = [result] if isinstance(result, (tf.Operation, tf.Tensor)) else []
        with tf.control_dependencies(_as_operations(operations)):
            cleared = [total.assign(tf.zeros_like(total)) for total in self._sums]
        return tf.group(*_as_operations(cleared)) if not tf.executing_eagerly() else result

    def _make(self, variables: Sequence[Any], grads: Sequence[Any]) -> None:
        if self._sums is not None:
            return
        with tf.init_scope():
            def make(value: Any) -> Any:
                return tf.Variable(value, trainable=False, name="horovod_aggregation")

            self._sums = [make(tf.zeros(variable.shape, grad.dtype))
                          for variable, grad in zip(variables, grads)]
            self._passes = make(tf.zeros([], tf.int64))


def _as_operations(values: Sequence[Any]) -> List[Any]:
    if tf.executing_eagerly():
        return []
    return [value.op if hasattr(value, "op") else value for value in values]


def _choose(condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    if tf.executing_eagerly():
        return then() if bool(condition) else otherwise()
    chosen = tf.cond(condition, then, otherwise)
    return list(chosen) if isinstance(chosen, (list, tuple)) else [chosen]
