"""Sums of the gradients of several backward passes, which are reduced once."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence

import tensorflow as tf


class LocalAggregation:
    """Sums gradients in local variables. Call `reduce` and then `apply` once for each backward pass.
    With one pass per step it has no variables."""

    def __init__(self, steps: int, average: bool = False) -> None:
        if not isinstance(steps, int) or steps < 1:
            raise ValueError(f"backward_passes_per_step must be a number above 0, not {steps}.")
        self.steps = steps
        self._average = average
        self._sums: Any = None
        self._passes: Any = None
        self._is_last: Any = None

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any],
               reduction: Callable[..., List[Any]], *more: Any) -> List[Any]:
        """Returns reduction(sums, variables, *more) in the last pass of a step; in other passes, unused
        values."""
        if self.steps == 1:
            return reduction(list(grads), list(variables), *more)
        there = [i for i, grad in enumerate(grads) if grad is not None]
        dense = [tf.convert_to_tensor(grads[i]) for i in there]
        self._make([variables[i] for i in there], dense)
        before = self._passes.read_value()
        is_first = tf.equal(before % self.steps, 0)  # the sums belong to a finished step
        added = [total.assign(tf.where(is_first, grad, total + grad))
                 for total, grad in zip(self._sums, dense)]
        with tf.control_dependencies(_as_operations([before, *added])):
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
        """Calls function() in the last pass of a step, and if `reduce` was never called."""
        if self.steps == 1 or self._passes is None:
            return function()
        if tf.executing_eagerly():
            return function() if int(self._passes) % self.steps == 0 else None
        is_last = self._is_last
        if getattr(is_last, "graph", None) is not tf.compat.v1.get_default_graph():
            is_last = tf.equal(self._passes % self.steps, 0)  # `reduce` ran in another function

        def applied() -> Any:
            result = function()
            return tf.group(*_as_operations([result] if isinstance(
                result, (tf.Operation, tf.Tensor)) else []))

        return tf.cond(is_last, applied, tf.no_op)

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
