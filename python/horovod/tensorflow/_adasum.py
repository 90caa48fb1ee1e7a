"""Optimizers with op=Adasum: each rank makes a local step, and Adasum combines the changes of the
steps."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence

import tensorflow as tf


def keep(grads: Sequence[Any], *unused: Any) -> List[Any]:
    """Replaces a reduction, and leaves gradients unchanged."""
    return list(grads)


def step(
    apply: Callable[[], Any], variables: Sequence[tf.Variable], reduce: Callable[[List[tf.Tensor]], List[tf.Tensor]]
) -> Any:
    """Calls apply(), which changes `variables`. Then sets them to their former values plus the result of `reduce` on
    the changes. In a graph of TensorFlow 1, returns the operation to run."""
    # In such a graph, reading a variable may return a reference instead of a copy, so copy the value.
    starts = [tf.raw_ops.DeepCopy(x=variable.read_value()) for variable in variables]
    with tf.control_dependencies(_in_graph(starts)):
        applied = apply()
    with tf.control_dependencies(_in_graph([applied])):
        changes = [variable.read_value() - start for variable, start in zip(variables, starts)]
    moved = [variable.assign(start + change) for variable, start, change in zip(variables, starts, reduce(changes))]
    return applied if tf.executing_eagerly() else tf.group(*_in_graph([applied, *moved]))


def _in_graph(values: Sequence[Any]) -> List[Any]:
    if tf.executing_eagerly():
        return []
    return [
        value.op if isinstance(getattr(value, "op", None), tf.Operation) else value
        for value in values
        if isinstance(value, (tf.Operation, tf.Tensor)) or hasattr(value, "op")
    ]
