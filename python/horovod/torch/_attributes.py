"""Read-only attributes of distributed optimizers."""

from __future__ import annotations

import collections
from typing import Any, Dict, List, NamedTuple, Set

import torch

from horovod.process_sets import ProcessSet
from horovod.torch._copies import Copied


class Options(NamedTuple):
    """The arguments of DistributedOptimizer that its attributes show."""

    compression: Any
    backward_passes_per_step: int
    op: int
    gradient_predivide_factor: float
    sparse_as_dense: bool
    process_set: ProcessSet


class Attributes(Copied):
    """A mixin before the user's optimizer class, with the attributes of Horovod's optimizers that
    scripts read."""

    _options: Options
    param_groups: List[Dict[str, Any]]  # of the user's class

    @staticmethod
    def find_duplicates(lst: Any) -> Set[Any]:
        """Returns the values that are in the list more than once."""
        return {value for value, count in collections.Counter(lst).items() if count > 1}

    @property
    def backward_passes_per_step(self) -> int:
        """The number of backward passes that add up to one step."""
        return self._options.backward_passes_per_step

    @property
    def op(self) -> int:
        """The reduction."""
        return self._options.op

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that reduce together."""
        return self._options.process_set

    @property
    def gradient_predivide_factor(self) -> float:
        """The part of the division of an average that is done before the sum."""
        return self._options.gradient_predivide_factor

    @property
    def sparse_as_dense(self) -> bool:
        """Whether sparse gradients are reduced as dense ones."""
        return self._options.sparse_as_dense

    @property
    def _compression(self) -> Any:
        return self._options.compression

    @property
    def _parameter_names(self) -> Dict[torch.Tensor, str]:
        return {
            param: self._names.get(id(param), f"added.{group_index}.{index}")
            for group_index, group in enumerate(self.param_groups)
            for index, param in enumerate(group["params"])
        }

    @property
    def _requires_update(self) -> Set[torch.Tensor]:
        return {param for param in self._parameter_names if param.requires_grad}
