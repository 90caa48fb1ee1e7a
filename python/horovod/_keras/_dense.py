"""Reduction of dense gradients, for backends whose gradients are lists of arrays."""

from __future__ import annotations

from typing import AbstractSet, Any, List, NamedTuple, Optional, Sequence

from horovod._compression import check_choices, check_predivision, checked_groups
from horovod._ops import Average, steps_travel
from horovod.process_sets import ProcessSet, global_process_set, id_of


class Reduction(NamedTuple):
    """The counterpart of horovod.tensorflow._reduction.Reduction. `reduce_all` is the backend's function: (arrays,
    name, compression, op, prescale, postscale, process_set) -> arrays. `name`: the base name of the requests; each
    optimizer has another base name."""

    compression: Any = None
    sparse_as_dense: bool = False
    op: int = Average
    gradient_predivide_factor: float = 1.0
    groups: Any = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    reduce_all: Any = None
    name: str = "keras.gradients"
    before_reduction: Any = None  # the function of the check of replicas

    def checked(self, num_groups: int = 0) -> Reduction:
        """Returns itself. Raises ValueError with one sentence for invalid arguments."""
        check_choices(self.op, self.compression)
        check_predivision(self.gradient_predivide_factor, self.op)
        checked_groups(self.groups, num_groups)
        id_of(self.process_set)
        return self

    def __call__(
        self,
        grads: Sequence[Any],
        variables: Optional[Sequence[Any]] = None,
        local: AbstractSet[Any] = frozenset(),
        optimizer: Any = None,
    ) -> List[Any]:
        results = list(grads)
        keys = [id(variable) for variable in variables or results]
        shared = [i for i, grad in enumerate(results) if grad is not None and keys[i] not in local]
        if self.scale_local_gradients:
            for i, grad in enumerate(results):
                if grad is not None and keys[i] in local:
                    results[i] = grad / self.process_set.size()
        factor = self.gradient_predivide_factor
        if shared:
            if self.before_reduction is not None:
                are_local = [key in local for key in keys]
                self.before_reduction(self, variables or (), shared, are_local, optimizer)
            reduced = self.reduce_all(
                [results[i] for i in shared],
                self.name,
                self.compression,
                self.op,
                1.0 / factor,
                factor,
                self.process_set,
            )
            for i, array in zip(shared, reduced):
                results[i] = array
        return results

    @property
    def takes_steps(self) -> bool:
        """Returns whether the ranks reduce the changes of their local steps instead of gradients."""
        return steps_travel(self.op, self.process_set)


def key_of(variable: Any) -> Any:
    return id(variable)
