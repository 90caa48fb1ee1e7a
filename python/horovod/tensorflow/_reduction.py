"""Reduction of gradients between backpropagation and the optimizer."""

from __future__ import annotations

from typing import AbstractSet, Any, List, NamedTuple, Optional, Sequence

import tensorflow as tf

from horovod import _basics
from horovod._compression import check_choices, check_predivision, checked_groups
from horovod._ops import Adasum, Average, steps_travel
from horovod.process_sets import ProcessSet, global_process_set, id_of
from horovod.tensorflow import _nodes, _reduced, _replicas
from horovod.tensorflow._collectives import allreduce, grouped_allreduce, reduce_dense
from horovod.tensorflow.compression import Compression


def key_of(variable: Any) -> Any:
    """Returns the key that identifies a variable of TensorFlow or Keras."""
    value = getattr(variable, "value", None)
    variable = value if isinstance(value, tf.Variable) else variable
    return variable.ref() if hasattr(variable, "ref") else id(variable)


# Maximum size of one gradient, and of all gradients, that wait for the end of backpropagation in a graph. On one host
# the ranks' own cores move the data, so starting early has no benefit.
_LIMITS_ON_ONE_HOST = (4 << 20, 16 << 20)
_LIMITS_BETWEEN_HOSTS = (64 << 10, 1 << 20)


def _on_one_host() -> bool:
    # In an elastic job, new ranks must make the same choice as the ranks that began on one host.
    return _basics.size() == _basics.local_size() and not _basics.is_elastic()


def _together(shared: Sequence[int], grads: Sequence[Any]) -> List[int]:
    """Returns the gradients of a graph that form one request; equal on all ranks. The first variables of a model get
    their gradients last, so the wait costs them least."""
    largest, left = _LIMITS_ON_ONE_HOST if _on_one_host() else _LIMITS_BETWEEN_HOSTS
    chosen = []
    for i in shared:
        grad = grads[i]
        count = None if isinstance(grad, tf.IndexedSlices) else grad.shape.num_elements()
        if count and count * grad.dtype.size <= min(largest, left):
            left -= count * grad.dtype.size
            chosen.append(i)
    return chosen


class Reduction(NamedTuple):
    """The arguments that tapes and optimizers share."""

    compression: Any = Compression.none
    sparse_as_dense: bool = False
    op: int = Average
    gradient_predivide_factor: float = 1.0
    groups: Any = None  # None, a number, or a list of lists of variables
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True

    def checked(self, num_groups: int = 0) -> Reduction:
        """Returns a copy with final `groups`. Raises ValueError with one sentence for invalid arguments."""
        check_choices(self.op, self.compression)
        check_predivision(self.gradient_predivide_factor, self.op)
        id_of(self.process_set)
        return self._replace(groups=checked_groups(self.groups, num_groups))

    def __call__(
        self,
        grads: Sequence[Any],
        variables: Optional[Sequence[Any]] = None,
        local: AbstractSet[Any] = frozenset(),
        generic_names: bool = False,
        optimizer: Any = None,
    ) -> List[Any]:
        """Returns the reduced gradients in order. None stays None. Gradients of variables whose keys are in `local`
        stay local, and are divided by the number of ranks if configured. `generic_names`: names depend on the
        gradients' indices, not on tensor names. `optimizer`: applies the gradients, if it is known. Raises ValueError
        for an unknown process set, even if all gradients stay local."""
        id_of(self.process_set)
        results = list(grads)
        keys = [key_of(v) for v in variables] if variables is not None else [None] * len(results)
        are_local = [key in local for key in keys]
        _reduced.note(variables or (), are_local)
        shared = []
        for i, grad in enumerate(results):
            if grad is None:
                continue
            if keys[i] in local:
                results[i] = self._scaled(grad)
                continue
            if self.sparse_as_dense and isinstance(grad, tf.IndexedSlices):
                results[i] = tf.convert_to_tensor(grad)
            shared.append(i)
        groups = self._groups(shared, keys, results)
        is_named = not generic_names and not tf.executing_eagerly()
        requests = [_nodes.source_name(results[group[0]]) for group in groups] if is_named else []
        with _replicas.before_reduction(self, variables or (), shared, are_local, optimizer, requests):
            for group in groups:
                name = f"grad_{group[0]}" if generic_names else None
                reduced = self._reduce([results[i] for i in group], len(groups) == 1, name)
                for i, tensor in zip(group, reduced):
                    results[i] = tensor
        return results

    def _scaled(self, grad: Any) -> Any:
        if not self.scale_local_gradients:
            return grad
        size = _nodes.number(2, _nodes.group_of(self.process_set))
        if isinstance(grad, tf.IndexedSlices):
            values = grad.values / tf.cast(size, grad.values.dtype)
            return tf.IndexedSlices(values, grad.indices, grad.dense_shape)
        return grad / tf.cast(size, grad.dtype)

    def _groups(self, shared: List[int], keys: List[Any], grads: List[Any]) -> List[List[int]]:
        if self.groups is None:
            # In eager execution all gradients are complete, so one request reduces them. In a graph, the reduction of a
            # large gradient starts as soon as backpropagation has computed it.
            if shared and tf.executing_eagerly():
                return [shared]
            together = [] if self.op == Adasum else _together(shared, grads)
            alone = [[i] for i in sorted(set(shared).difference(together))]
            return [together, *alone] if together else alone
        if isinstance(self.groups, int):
            count = min(self.groups, len(shared))
            bounds = [len(shared) * i // count for i in range(count + 1)] if count else [0]
            return [shared[a:b] for a, b in zip(bounds, bounds[1:])]
        group_of = {key_of(v): n for n, group in enumerate(self.groups) for v in group}
        groups: dict = {}
        for i in shared:
            groups.setdefault(group_of.get(keys[i], ("alone", i)), []).append(i)
        return list(groups.values())

    def _reduce(self, grads: List[Any], is_all: bool, name: Optional[str]) -> List[Any]:
        factor = self.gradient_predivide_factor
        if is_all and _on_one_host() and not any(isinstance(g, tf.IndexedSlices) for g in grads):
            return reduce_dense(
                grads,
                name,
                self.compression,
                self.op,
                1.0 / factor,
                factor,
                self.process_set,
                name is not None,
                is_last=True,
            )
        arguments = {
            "compression": self.compression,
            "op": self.op,
            "prescale_factor": 1.0 / factor,
            "postscale_factor": factor,
            "process_set": self.process_set,
            "name": name,
            "ignore_name_scope": name is not None,
        }
        if len(grads) == 1:
            return [allreduce(grads[0], **arguments)]
        return grouped_allreduce(grads, **arguments)

    @property
    def takes_steps(self) -> bool:
        """Returns whether the ranks reduce the changes of their local steps instead of gradients."""
        return steps_travel(self.op, self.process_set)
