"""Gradient tapes that return gradients reduced over all ranks."""

from __future__ import annotations

from typing import AbstractSet, Any, Callable, List, Optional, Sequence, Tuple

import tensorflow as tf

from horovod._keras import mark_reduced, variables_of
from horovod._ops import Average
from horovod.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._reduction import Reduction, key_of
from horovod.tensorflow.compression import Compression


class _DistributedGradientTape(tf.GradientTape):
    """A tape that has taken over the records of another tape."""

    def __init__(self, tape: tf.GradientTape, reduction: Reduction) -> None:
        self.__dict__.update(tape.__dict__)
        self._hvd_reduction = reduction
        self._local_sources: set = set()

    @property
    def process_set(self) -> ProcessSet:
        """The ranks over which `gradient` reduces."""
        return self._hvd_reduction.process_set

    @property
    def scale_local_gradients(self) -> bool:
        """Returns whether gradients of local sources are divided by the number of ranks."""
        return self._hvd_reduction.scale_local_gradients

    def register_local_source(self, source: Any) -> None:
        """Keeps the gradient of this variable local to this rank."""
        self._local_sources.add(key_of(source))

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
        use_generic_names: bool = False,
    ) -> Any:
        """Returns the result of tf.GradientTape.gradient, reduced over all ranks; all ranks must call it.

        `use_generic_names`: operation names depend on the gradients' order instead of the names of tensors, for ranks
        whose models use different names."""
        grads = super().gradient(target, sources, output_gradients, unconnected_gradients)
        flat = tf.nest.flatten(grads, expand_composites=False)
        variables = tf.nest.flatten(sources, expand_composites=False)
        reduced = self._reduced(flat, variables, self._local_sources, use_generic_names)
        return tf.nest.pack_sequence_as(grads, reduced)

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> Tuple[List, List]:
        """Returns two lists of pairs (source, gradient): the unreduced gradients of local sources, and the gradients of
        other sources, reduced over all ranks. All ranks must call it."""
        variables = tf.nest.flatten(sources, expand_composites=False)
        grads = self.gradient(target, variables, output_gradients, use_generic_names=use_generic_names)
        pairs = list(zip(variables, grads))
        return (
            [pair for pair in pairs if key_of(pair[0]) in self._local_sources],
            [pair for pair in pairs if key_of(pair[0]) not in self._local_sources],
        )

    def _allreduce_grads(
        self, grads: Sequence[Any], vars: Optional[Sequence[Any]] = None, use_generic_names: bool = False
    ) -> List[Any]:
        """Returns these gradients, reduced over all ranks, for scripts that replace `gradient`."""
        return self._reduced(grads, vars, frozenset(), use_generic_names)

    def _reduced(
        self, grads: Sequence[Any], variables: Optional[Sequence[Any]], local: AbstractSet[Any], use_generic_names: bool
    ) -> List[Any]:
        results = self._hvd_reduction(grads, variables, local, use_generic_names)
        for grad in results:
            mark_reduced(grad)
        return results


def make_allreduce_grads_fn(
    name: Any,
    device_dense: str,
    device_sparse: str,
    compression: Any,
    sparse_as_dense: bool,
    op: int,
    gradient_predivide_factor: float,
    groups: Any,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., List[Any]]:
    """Returns the function that reduces lists of gradients, with the arguments of `DistributedGradientTape`, for
    scripts with their own optimizers. The function takes the gradients, their variables and `use_generic_names`; a
    gradient of None stays None. `name` and the devices are accepted for existing scripts. Raises ValueError for
    invalid arguments."""
    reduction = Reduction(compression, sparse_as_dense, op, gradient_predivide_factor, groups, process_set).checked()

    def allreduce_grads(
        grads: Sequence[Any], vars: Optional[Sequence[Any]] = None, use_generic_names: bool = False
    ) -> List[Any]:
        return reduction(grads, vars, frozenset(), use_generic_names)

    return allreduce_grads


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """Returns a tape like `gradtape`, with its recorded operations, whose `gradient` reduces the
    gradients over all ranks.

    `compression`: the type of gradients in transfer. `sparse_as_dense`: makes tf.IndexedSlices dense
    first. `gradient_predivide_factor`: f splits the division of an average in two: by f before the sum
    and by size / f after it. `groups`: the number of groups, or lists of variables, whose gradients are
    reduced in one request. `scale_local_gradients`: divides the gradients of sources given to
    `register_local_source` by the number of ranks. A `DistributedOptimizer` of Keras does not reduce
    gradients of this tape again; Keras's own optimizers work too. Raises ValueError for invalid
    arguments.
    """
    if not isinstance(gradtape, tf.GradientTape):
        raise ValueError(f"DistributedGradientTape takes a tf.GradientTape, not a {type(gradtape).__name__}.")
    reduction = Reduction(
        compression, sparse_as_dense, op, gradient_predivide_factor, groups, process_set, scale_local_gradients
    ).checked(num_groups)
    return _DistributedGradientTape(gradtape, reduction)


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Optional[Any] = None,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """Returns a `DistributedGradientTape` that does not reduce the gradients of `local_layers`, a built layer
    or a list of built layers."""
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for variable in variables_of(local_layers):
        tape.register_local_source(variable)
    return tape
