"""Copies and read-only attributes of distributed optimizers."""

from __future__ import annotations

import collections
import copy
from typing import Any, Callable, Dict, List, NamedTuple, Set, Type

import torch

from horovod.process_sets import ProcessSet


class Options(NamedTuple):
    """The arguments of DistributedOptimizer that are readable as attributes."""

    compression: Any
    backward_passes_per_step: int
    op: int
    gradient_predivide_factor: float
    sparse_as_dense: bool
    process_set: ProcessSet


def _params(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    return [param for group in optimizer.param_groups for param in group["params"]]


class Copied:
    """A mixin before the user's optimizer class. A pickled optimizer loads as an instance of the user's class. A copy
    is distributed like its original, and a shallow copy reduces the same gradients."""

    _base: Type[torch.optim.Optimizer]
    _names: Dict[int, str]
    _options: Any
    # Makes an optimizer distributed, with these (name, parameter) pairs and this number of passes. The last argument
    # maps a parameter of the old optimizer to the parameter of the new one.
    _again: Callable[[Any, Any, int, Callable[[torch.Tensor], torch.Tensor]], Any]

    def _plain(self) -> torch.optim.Optimizer:
        plain: Any = self._base.__new__(self._base)  # type: ignore[call-overload]
        plain.__setstate__(self.__getstate__())
        return plain

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._plain().__reduce_ex__(1)  # protocols above 1 need the class of the object

    def __copy__(self) -> Any:
        made: Any = type(self).__new__(type(self))
        # Like a copy of a plain optimizer, omits the `step` that a scheduler has set on the original.
        made.__dict__.update({key: value for key, value in self.__dict__.items() if key != "step"})
        return made

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        plain = copy.deepcopy(self._plain(), memo)
        pairs = list(zip(_params(self), _params(plain)))
        copies = {id(param): other for param, other in pairs}
        named = [
            (f"copy.{self._names.get(id(param), f'added.{index}')}", other)
            for index, (param, other) in enumerate(pairs)
        ]
        return self._again(plain, named, self._options.backward_passes_per_step, lambda param: copies[id(param)])


class Attributes(Copied):
    """A mixin before the user's optimizer class, with the attributes of Horovod's optimizers that
    scripts read."""

    _options: Options
    param_groups: List[Dict[str, Any]]  # an attribute of the user's class

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
        """The reduction of the gradients: Average, Sum or Adasum."""
        return self._options.op

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that reduce together."""
        return self._options.process_set

    @property
    def gradient_predivide_factor(self) -> float:
        """The divisor that an average applies before the sum."""
        return self._options.gradient_predivide_factor

    @property
    def sparse_as_dense(self) -> bool:
        """True if the ranks reduce sparse gradients as dense gradients."""
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
