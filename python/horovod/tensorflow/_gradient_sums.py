"""Sums of the gradients of one step in local variables: one sum for each variable of the model."""

from __future__ import annotations

from typing import AbstractSet, Any, Dict, List, Sequence, Tuple

import tensorflow as tf

# The key of a variable, and the index of its gradient in one pass, because a list may contain a variable twice.
Key = Tuple[Any, int]


def as_operations(values: Sequence[Any]) -> List[Any]:
    """Returns the operations that produce these values in a graph; an empty list if TensorFlow executes eagerly."""
    if tf.executing_eagerly():
        return []
    return [
        value.op if isinstance(getattr(value, "op", None), tf.Operation) else value
        for value in values
        if isinstance(value, (tf.Operation, tf.Tensor)) or hasattr(value, "op")
    ]


def as_group(value: Any) -> Any:
    """Returns an operation that waits for this value; for None, an empty operation."""
    return tf.group(*as_operations([value]))


def _made(value: Any) -> tf.Variable:
    return tf.Variable(value, trainable=False, name="horovod_aggregation")


def _add(total: tf.Variable, value: Any, is_first: Any, combine: Any) -> Any:
    if tf.executing_eagerly():
        return total.assign(value if bool(is_first) else combine(total, value))
    return total.assign(tf.where(is_first, value, combine(total.read_value(), value)))


class _Sum:
    """The sum of one variable's gradients; an IndexedSlices if the first gradient is one."""

    def __init__(self, variable: Any, grad: Any) -> None:
        self.variable = variable
        self._total = _made(tf.zeros(variable.shape, grad.dtype))
        self._rows: Any = None  # whether each row has a gradient
        if isinstance(grad, tf.IndexedSlices):
            self._rows = _made(tf.zeros(variable.shape[:1], tf.bool))

    def add(self, grad: Any, is_first: Any) -> List[Any]:
        """Adds a gradient. `is_first`: the sum still has the value of an earlier step."""
        value = tf.cast(tf.convert_to_tensor(grad), self._total.dtype)
        writes = [_add(self._total, value, is_first, tf.add)]
        if self._rows is not None:
            writes.append(_add(self._rows, self._rows_of(grad), is_first, tf.logical_or))
        return writes

    def _rows_of(self, grad: Any) -> Any:
        if not isinstance(grad, tf.IndexedSlices):
            return tf.ones(self._rows.shape, tf.bool)
        indices = tf.cast(tf.reshape(grad.indices, [-1, 1]), tf.int64)
        ones = tf.ones_like(indices[:, 0])
        return tf.scatter_nd(indices, ones, tf.constant(self._rows.shape.as_list(), tf.int64)) > 0

    def value(self, divisor: int, is_there: Any = True) -> Any:
        """Returns the sum divided by `divisor`; zero where `is_there` is false."""
        total = self._total.read_value()
        if divisor != 1:
            total = total / divisor
        if self._rows is None:
            return total if is_there is True else tf.where(is_there, total, tf.zeros_like(total))
        rows = self._rows.read_value() if is_there is True else self._rows.read_value() & is_there
        indices = tf.reshape(tf.where(rows), [-1])
        return tf.IndexedSlices(tf.gather(total, indices), indices, tf.constant(self._total.shape.as_list(), tf.int64))


class _Block:
    """The sums that one pass has created. Stores for each sum the last step in which it got a gradient, and the last
    pass that listed its variable."""

    def __init__(self, sums: Dict[Key, _Sum]) -> None:
        self.sums = sums
        self._steps, self._passes = [_made(tf.fill([len(sums)], tf.constant(-1, tf.int64))) for _ in range(2)]

    def add(self, grads: Dict[Key, Any], listed: AbstractSet[Key], number: Any, step: Any) -> Tuple[List[Any], Any]:
        """Returns the writes of a pass, and the number of sums that got their first gradient in this step."""
        last = self._steps.read_value()
        given = tf.constant([key in grads for key in self.sums])
        is_first = tf.not_equal(last, step)
        writes = [
            self._mark(self._steps, last, given, step),
            self._mark(
                self._passes, self._passes.read_value(), tf.constant([key in listed for key in self.sums]), number
            ),
        ]
        for (key, total), first in zip(self.sums.items(), tf.unstack(is_first, num=len(self.sums))):
            if key in grads:
                writes += total.add(grads[key], first)
        return writes, tf.reduce_sum(tf.cast(given & is_first, tf.int64))

    def mark_listed(self, keys: AbstractSet[Key], number: Any) -> None:
        self._mark(self._passes, self._passes.read_value(), tf.constant([key in keys for key in self.sums]), number)

    def _mark(self, marks: tf.Variable, before: Any, chosen: Any, number: Any) -> Any:
        return marks.assign(tf.where(chosen, tf.cast(number, tf.int64), before))

    def touched(self, step: Any) -> Dict[Key, Any]:
        return self._equal(self._steps, step)

    def listed(self, number: Any) -> Dict[Key, Any]:
        return self._equal(self._passes, number)

    def _equal(self, marks: tf.Variable, number: Any) -> Dict[Key, Any]:
        equal = tf.equal(marks.read_value(), number)
        return dict(zip(self.sums, equal.numpy() if tf.executing_eagerly() else tf.unstack(equal, num=len(self.sums))))


class GradientSums:
    """All sums of one optimizer. `passes`: the number of passes of this rank; `steps` of them make a
    step. Passes count from 1 in the arguments of functions."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._blocks: List[_Block] = []
        self._sums: Dict[Key, _Sum] = {}
        with tf.init_scope():
            self.passes = _made(tf.zeros([], tf.int64))
            self._count = _made(tf.zeros([], tf.int64))  # number of sums with gradients in this step

    def __contains__(self, key: Key) -> bool:
        return key in self._sums

    def variable(self, key: Key) -> Any:
        return self._sums[key].variable

    def value(self, key: Key, divisor: int, is_there: Any = True) -> Any:
        return self._sums[key].value(divisor, is_there)

    def add(self, grads: Dict[Key, Any], variables: Dict[Key, Any]) -> Any:
        """Adds the gradients of a pass. `variables`: the listed variables, with or without a gradient. Returns the
        number of passes so far."""
        new = [key for key in grads if key not in self._sums]
        if new:
            with tf.init_scope():  # also during tracing, because the variables must not belong to the traced function
                block = _Block({key: _Sum(variables[key], grads[key]) for key in new})
            self._blocks.append(block)
            self._sums.update(block.sums)
        before = self.passes.read_value()
        writes, first = [before], tf.zeros([], tf.int64)
        for block in self._blocks:
            more, count = block.add(grads, variables.keys(), before + 1, before // self._steps)
            writes += more
            first += count
        begins = tf.equal(before % self._steps, 0)
        writes.append(self._count.assign(first + tf.where(begins, tf.zeros_like(first), self._count.read_value())))
        with tf.control_dependencies(as_operations(writes)):
            passes = self.passes.assign_add(1)
            with tf.control_dependencies(as_operations([passes])):
                return tf.identity(passes)

    def touched(self, number: Any) -> Dict[Key, Any]:
        """Returns whether each sum has received a gradient in the step that contains the pass `number`."""
        with tf.control_dependencies(as_operations([number])):
            return {
                key: is_touched
                for block in self._blocks
                for key, is_touched in block.touched((number - 1) // self._steps).items()
            }

    def listed(self, number: Any) -> Dict[Key, Any]:
        """Returns for each sum whether its variable was in the list of the pass `number`."""
        with tf.control_dependencies(as_operations([number])):
            return {key: is_listed for block in self._blocks for key, is_listed in block.listed(number).items()}

    def count(self, number: Any) -> Any:
        """Returns the number of sums with a gradient in this step, including sums unknown to a function that was
        compiled earlier."""
        with tf.control_dependencies(as_operations([number])):
            return self._count.read_value()

    def mark_listed(self, keys: AbstractSet[Key], number: Any) -> None:
        """Marks these sums as listed by the pass `number`."""
        for block in self._blocks:
            block.mark_listed(keys, number)
