"""Sums of the gradients of several backward passes, which the ranks reduce once."""

from __future__ import annotations

import collections
import weakref
from typing import (
    AbstractSet,
    Any,
    Callable,
    Deque,
    Dict,
    FrozenSet,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import tensorflow as tf

from horovod.tensorflow._gradient_sums import GradientSums, Key, as_group, as_operations
from horovod.tensorflow._graph_updates import GraphUpdates, about_closures
from horovod.tensorflow._reduction import key_of

Pairs = List[Tuple[Any, Any]]
_MOST_PASSES = 32  # maximum number of passes that may be computed before the first of them is applied
_MOST_OPERATIONS = 10000  # maximum number of operations searched between the gradients of a pass and their use


class Pass(NamedTuple):
    """One call of `reduce`, or its operations in a graph."""

    graph: Any  # None: eager execution
    number: Any  # number of passes up to this one
    given: FrozenSet[Key]  # the keys of variables with a gradient
    returned: FrozenSet[Key]  # the keys of gradients that `reduce` has returned
    listed: FrozenSet[Key]  # the keys of all variables in its argument
    results: Tuple[Any, ...]  # the identities of the returned gradients: see _origins


class LocalAggregation:
    """Sums gradients in local variables, for each variable of the model. Call `reduce` and then `apply` once for each
    backward pass. The passes of a step may have gradients of different variables, and list them in any order. With one
    pass per step, it creates no variables."""

    def __init__(self, steps: int, average: bool = False, sparse_as_dense: bool = False) -> None:
        if not isinstance(steps, int) or steps < 1:
            raise ValueError(f"backward_passes_per_step must be a number above 0, not {steps}.")
        self.steps = steps
        self._divisor = steps if average else 1
        self._dense = sparse_as_dense
        self.sums: Any = None
        self._reduction: Any = None
        self._passes: Deque[Pass] = collections.deque(maxlen=_MOST_PASSES)
        self._updates = GraphUpdates(self)

    def reduce(
        self, grads: Sequence[Any], variables: Sequence[Any], reduction: Callable[[List[Any], List[Any]], List[Any]]
    ) -> List[Any]:
        """Returns reduction(sums, variables) in the last pass of a step; in other passes, unused values. In the last
        pass of a step, a variable without a gradient gets the sum of the earlier passes. In a graph this sum may be
        zero; then `apply` omits the variable."""
        if self.steps == 1:
            return reduction(list(grads), list(variables))
        if self.sums is None:
            self.sums = GradientSums(self.steps)
        self._reduction = reduction
        keys = _keys_of(grads, variables)
        given = {
            key: tf.convert_to_tensor(grad) if self._dense else grad
            for key, grad in zip(keys, grads)
            if grad is not None
        }
        number = self.sums.add(given, dict(zip(keys, variables)))
        returned = self._returned(keys, given, number)
        results: List[Any] = [None] * len(keys)
        for i, tensor in zip(returned, self._reduced(keys, given, number, returned)):
            results[i] = tensor
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self._passes.append(
            Pass(
                graph,
                int(number) if graph is None else number,
                frozenset(given),
                frozenset(keys[i] for i in returned),
                frozenset(keys),
                tuple(map(_identity, filter(_is_there, results))),
            )
        )
        self._updates.learn(frozenset(given))
        return results

    def _returned(self, keys: List[Key], given: Dict[Key, Any], number: Any) -> List[int]:
        if not tf.executing_eagerly():
            return [i for i, key in enumerate(keys) if key in self.sums]
        there = self.sums.touched(number) if number % self.steps == 0 else given
        return [i for i, key in enumerate(keys) if key in given or there.get(key, False)]

    def _reduced(self, keys: List[Key], given: Dict[Key, Any], number: Any, chosen: List[int]) -> List[Any]:
        touched = {} if len(chosen) == len(given) else self.sums.touched(number)

        def sums() -> List[Any]:
            with tf.control_dependencies(as_operations([number])):
                return [self.sums.value(keys[i], self._divisor, keys[i] in given or touched[keys[i]]) for i in chosen]

        def reduced() -> List[Any]:
            return self._reduction(sums(), [self.sums.variable(keys[i]) for i in chosen])

        return _choose(tf.equal(number % self.steps, 0), reduced, sums) if chosen else []

    def apply(
        self, function: Callable[[Pairs], Any], pairs: Optional[Pairs] = None, count: Optional[Callable[[], Any]] = None
    ) -> Any:
        """Calls function(pairs) in the last pass of a step, and if `reduce` was never called; calls `count` in the
        other passes. The pairs include variables whose gradients came only in earlier passes of the step. `pairs` is
        None if the function has its own pairs; then such a variable raises ValueError."""
        if self.steps == 1 or self.sums is None:
            return function(pairs or [])
        found = self._pass_of(pairs)
        if tf.executing_eagerly():
            number = int(self.sums.passes) if found is None else found.number
            return self._apply_now(number, function, pairs, count)
        with tf.init_scope():
            is_function = tf.executing_eagerly()
        if is_function:
            return self._apply_in_function(found, function, pairs, count)
        return self._updates.apply(found, function, pairs, count)

    def _apply_now(
        self,
        number: int,
        function: Callable[[Pairs], Any],
        pairs: Optional[Pairs],
        count: Optional[Callable[[], Any]] = None,
        zeros: AbstractSet[Key] = frozenset(),
    ) -> Any:
        """Applies eagerly after the pass `number`. `zeros`: the keys of gradients that may be zeros instead of None."""
        if number % self.steps:
            return count() if count else None
        touched, listed = self.sums.touched(number), self.sums.listed(number)
        rest = [key for key in touched if touched[key] and not listed[key]]
        zeros = {key for key in zeros if listed[key] and not touched[key]}
        if pairs is None:
            if rest or zeros:
                raise ValueError(about_closures(self.names([*rest, *zeros])))
            return function([])
        if rest:
            self.sums.mark_listed(set(rest), number)
        kept = [pair for pair in pairs if (key_of(pair[1]), 0) not in zeros]
        return function(kept + self.rest(rest))

    def rest(self, keys: Sequence[Key]) -> Pairs:
        """Returns the reduced gradients of these sums, with their variables."""
        if not keys:
            return []
        variables = [self.sums.variable(key) for key in keys]
        return list(zip(self._reduction([self.sums.value(key, self._divisor) for key in keys], variables), variables))

    def names(self, keys: Sequence[Key]) -> str:
        """Returns the names of these sums' variables, for an error message."""
        return ", ".join(sorted(str(getattr(self.sums.variable(key), "name", "?")) for key in keys))

    def _pass_of(self, pairs: Optional[Pairs]) -> Optional[Pass]:
        """Returns the pass that has computed the gradients of `pairs`, if it ran in this graph; otherwise the newest
        pass that may have computed them."""
        graphs = _graphs()
        here = [one for one in self._passes if any(one.graph is graph for graph in graphs)]
        passes = {id(result): one for one in here for result in one.results}
        source = next((passes[id(one)] for one in _origins(pairs or []) if id(one) in passes), None)
        if source is None and here:
            asked = {key_of(variable) for _, variable in pairs or []}
            source = next((one for one in reversed(here) if {ref for ref, _ in one.listed} >= asked), here[-1])
        if source is not None and source.graph is None:
            self._passes.remove(source)  # a later pass may run in a function
        return source

    def _apply_in_function(
        self,
        found: Optional[Pass],
        function: Callable[[Pairs], Any],
        pairs: Optional[Pairs],
        count: Optional[Callable[[], Any]],
    ) -> Any:
        given: Pairs = [pair for pair in pairs or [] if pair[0] is not None]
        grads, variables = [grad for grad, _ in given], [variable for _, variable in given]
        with tf.control_dependencies(as_operations(tf.nest.flatten(grads, expand_composites=True))):
            number = self.sums.passes.read_value() if found is None else found.number

        def run(number: Any, *tensors: Any) -> None:
            known = tf.nest.pack_sequence_as(grads, list(tensors), expand_composites=True)
            zeros = set(self.sums.touched(number)) if found is None else found.returned - found.given
            self._apply_now(int(number), function, None if pairs is None else list(zip(known, variables)), zeros=zeros)

        def in_python() -> Any:
            tensors = tf.nest.flatten(grads, expand_composites=True)
            return as_group(tf.py_function(run, [number, *tensors], []))

        def applied() -> Any:
            return as_group(tf.cond(self._is_usual(found, number), lambda: as_group(function(pairs or [])), in_python))

        return tf.cond(tf.equal(number % self.steps, 0), applied, lambda: as_group(count() if count else None))

    def _is_usual(self, found: Optional[Pass], number: Any) -> Any:
        """Returns whether the last pass has returned the gradients of all variables of its step, and no others. Another
        step may have gradients of variables that were unknown at compilation: Python applies them."""
        touched, listed = self.sums.touched(number), self.sums.listed(number)
        is_touched = tf.stack(list(touched.values()))
        is_returned = tf.stack(
            [
                is_listed if found is None or key in found.returned else tf.constant(False)
                for key, is_listed in listed.items()
            ]
        )
        known = tf.reduce_sum(tf.cast(is_touched, tf.int64))
        return tf.equal(known, self.sums.count(number)) & tf.reduce_all(tf.equal(is_touched, is_returned))


def _keys_of(grads: Sequence[Any], variables: Sequence[Any]) -> List[Key]:
    # The n-th gradient of a variable is added to its n-th sum. Entries with gradients are numbered first, so that None
    # entries, wherever they stand, leave no gap in the numbers of a variable's gradients.
    counts: Dict[Any, int] = {}
    keys: List[Any] = [None] * len(grads)
    refs = [key_of(variable) for variable in variables]
    for is_none in (False, True):
        for i, grad in enumerate(grads):
            if (grad is None) == is_none:
                keys[i] = (refs[i], counts.get(refs[i], 0))
                counts[refs[i]] = keys[i][1] + 1
    return keys


def _is_there(grad: Any) -> bool:
    return grad is not None


def _identity(grad: Any) -> Any:
    # A new tensor may have the id of a deleted tensor, so use weak references.
    tensor = grad.values if isinstance(grad, tf.IndexedSlices) else grad
    return weakref.ref(tensor) if tf.executing_eagerly() else getattr(tensor, "op", None)


def _origins(pairs: Pairs) -> Iterator[Any]:
    """Yields the identities of the gradients of these pairs. In a graph, also yields the operations upstream:
    a clipped gradient is a new tensor, computed from the gradient that `reduce` returned."""
    waiting = collections.deque(_identity(grad) for grad, _ in pairs if grad is not None)
    seen = set(map(id, waiting))
    while waiting and len(seen) < _MOST_OPERATIONS:
        yield waiting[0]
        inputs = [tensor.op for tensor in getattr(waiting.popleft(), "inputs", [])]
        waiting.extend(one for one in dict.fromkeys(inputs) if id(one) not in seen)
        seen.update(map(id, inputs))


def _graphs() -> List[Any]:
    """Returns the graph that gets new operations now, and its outer graphs."""
    if tf.executing_eagerly():
        return [None]
    graphs = [tf.compat.v1.get_default_graph()]
    while getattr(graphs[-1], "outer_graph", None) is not None:
        graphs.append(graphs[-1].outer_graph)
    return graphs


def _choose(condition: Any, then: Callable[[], List[Any]], otherwise: Callable[[], List[Any]]) -> List[Any]:
    if tf.executing_eagerly():
        return then() if bool(condition) else otherwise()
    dense: List[bool] = []

    def first() -> List[Any]:
        values = then()
        dense[:] = [not isinstance(value, tf.IndexedSlices) for value in values]
        return values

    def second() -> List[Any]:  # a reduction may turn IndexedSlices into tensors
        return [tf.convert_to_tensor(value) if is_dense else value for value, is_dense in zip(otherwise(), dense)]

    chosen = tf.cond(condition, first, second)
    return list(chosen) if isinstance(chosen, (list, tuple)) else [chosen]
