"""Operations that apply gradients of several passes in graphs of TensorFlow 1."""

from __future__ import annotations

from typing import Any, Callable, FrozenSet, List, Optional, Set

import tensorflow as tf

from horovod.tensorflow._gradient_sums import Key, as_group, as_operations
from horovod.tensorflow._reduction import key_of

_MOST_SETS = 64  # maximum number of sets of variables that may have gradients in one step


class _Update:
    """An operation that applies the gradients of a step that ends with a certain pass."""

    def __init__(self, last: Any, function: Callable[..., Any], pairs: Optional[list]) -> None:
        self.last, self.function, self.pairs = last, function, pairs
        self.graph = tf.compat.v1.get_default_graph()
        self.can_grow = not hasattr(self.graph, "outer_graph") and self.graph._get_control_flow_context() is None
        self.done: Set[FrozenSet[Key]] = set()


class GraphUpdates:
    """The updates of one optimizer. A graph is built before the order of its passes is known, and a later pass may have
    gradients of more variables. Each update has a branch for each set of variables that can have gradients in a step,
    and gains a branch when a new set becomes known."""

    def __init__(self, aggregation: Any) -> None:
        self._aggregation = aggregation
        self._given: List[FrozenSet[Key]] = []
        self._updates: List[Any] = []

    def learn(self, given: FrozenSet[Key]) -> None:
        """Records that a pass has gradients of these variables."""
        if given in self._given:
            return
        self._given.append(given)
        for update, operation in self._updates:
            with update.graph.as_default(), tf.control_dependencies(None):
                operation._add_control_inputs(self._branches(update))

    def apply(
        self, last: Any, function: Callable[..., Any], pairs: Optional[list], count: Optional[Callable[[], Any]]
    ) -> Any:
        """Returns the operation of `LocalAggregation.apply` for steps whose last pass is `last`."""
        if last is None:
            raise ValueError(
                "apply_gradients: no gradients were computed in this graph; call "
                "compute_gradients of this optimizer in it."
            )
        update = _Update(last, function, pairs)
        branches = self._branches(update)
        if not update.can_grow:
            branches.append(self._check(update))
        if count is not None:
            branches.append(tf.cond(self._is_end(last), tf.no_op, lambda: as_group(count())))
        operation = tf.group(*branches)
        if update.can_grow:
            self._updates.append((update, operation))
        return operation

    def _is_end(self, last: Any) -> Any:
        return tf.equal(last.number % self._aggregation.steps, 0)

    def _branches(self, update: _Update) -> List[Any]:
        """Returns operations for the sets that `update` does not know yet."""
        new = [keys for keys in self._sets(update.last.given) if keys not in update.done]
        update.done.update(new)
        return [self._branch(update, keys) for keys in new]

    def _sets(self, last: FrozenSet[Key]) -> List[FrozenSet[Key]]:
        """Returns the sets of variables that may have gradients in a step whose last pass has gradients of `last`."""
        found = [last]
        for _ in range(self._aggregation.steps - 1):
            more = dict.fromkeys(one | given for one in found for given in self._given)
            new = [keys for keys in more if keys not in found]
            if not new:
                break
            found += new
            if len(found) > _MOST_SETS:
                raise ValueError(
                    "backward_passes_per_step: the passes of this graph have gradients of too many "
                    "different sets of variables; make an optimizer for each of them."
                )
        return found

    def _branch(self, update: _Update, keys: FrozenSet[Key]) -> Any:
        last, sums = update.last, self._aggregation.sums
        touched = sums.touched(last.number)
        is_it = (
            self._is_end(last)
            & tf.equal(sums.count(last.number), len(keys))
            & tf.reduce_all(tf.stack([touched[key] for key in keys]))
        )
        missing = {ref for ref, number in last.returned - keys if number == 0}
        rest = sorted(keys - last.returned, key=list(touched).index)

        def applied() -> Any:
            if update.pairs is None:
                names = self._aggregation.names([*rest, *(last.returned - keys)])
                return as_group(tf.debugging.Assert(False, [about_closures(names)]) if names else update.function([]))
            kept = [pair for pair in update.pairs if key_of(pair[1]) not in missing]
            with tf.control_dependencies(as_operations([last.number])):
                more = self._aggregation.rest(rest)
            return as_group(update.function(kept + more))

        return as_group(tf.cond(is_it, applied, tf.no_op))

    def _check(self, update: _Update) -> Any:
        """Returns an operation that fails if a step has gradients of other variables."""
        count, number = self._aggregation.sums.count(update.last.number), update.last.number
        is_known = tf.reduce_any([tf.equal(count, len(keys)) for keys in update.done])
        return tf.debugging.Assert(
            tf.logical_or(tf.not_equal(number % self._aggregation.steps, 0), is_known),
            [
                "apply_gradients inside of a condition lacks variables of which "
                "the optimizer learned later; make the condition after all calls "
                "of compute_gradients."
            ],
        )


def about_closures(names: str) -> str:
    """Returns the error text for sums that a function with its own pairs cannot apply."""
    return (
        f"The passes of this step have gradients of different variables, and the last pass has no "
        f"gradient of {names}: execute the passes eagerly, and give compute_gradients all variables in "
        "each pass, with None for those without a gradient."
    )
