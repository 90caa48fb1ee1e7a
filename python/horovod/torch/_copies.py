"""Copies of distributed optimizers."""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, List, Type

import torch


def _params(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    return [param for group in optimizer.param_groups for param in group["params"]]


class Copied:
    """A mixin before the user's optimizer class. A pickled optimizer loads as one of the user's class;
    a copy is distributed like its original, and a shallow one reduces the same gradients."""

    _base: Type[torch.optim.Optimizer]
    _names: Dict[int, str]
    _options: Any
    # Distributes an optimizer with these (name, parameter) pairs and this number of passes; its last
    # argument finds parameters.
    _again: Callable[[Any, Any, int, Callable[[torch.Tensor], torch.Tensor]], Any]

    def _plain(self) -> torch.optim.Optimizer:
        plain: Any = self._base.__new__(self._base)  # type: ignore[call-overload]
        plain.__setstate__(self.__getstate__())
        return plain

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._plain().__reduce_ex__(1)  # later versions need the object's own class

    def __copy__(self) -> Any:
        made: Any = type(self).__new__(type(self))
        # As in a plain copy, a scheduler's `step` of the original is not one of the copy.
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
