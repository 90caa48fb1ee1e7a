"""Copies of state_dicts in reused memory, and marks of tensors that need no copy."""

from __future__ import annotations

import collections
import copy
from typing import Any, List, Tuple

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_CONSTANTS = (int, float, bool, str, type(None))


def kept_copy(value: Any, kept: Any, on_host: bool) -> Any:
    """Returns a copy of the value. `kept`: an earlier copy, or None; its tensors are overwritten if shape, dtype and
    device are equal, because new memory costs several times as much as the copy. `on_host`: copies device tensors to
    host memory."""
    if type(value) in _PLAIN and value.layout is torch.strided:
        device = torch.device("cpu") if on_host else value.device
        fits = type(kept) is torch.Tensor and (kept.shape, kept.dtype, kept.device) == (
            value.shape,
            value.dtype,
            device,
        )
        with torch.no_grad():
            target = kept if fits else torch.empty_like(value, device=device, requires_grad=False)
            return target.copy_(value)
    if type(value) in (dict, collections.OrderedDict):
        before = kept if isinstance(kept, dict) else {}
        made = type(value)((key, kept_copy(one, before.get(key), on_host)) for key, one in value.items())
        if hasattr(value, "_metadata"):  # the state_dict of a module
            made._metadata = copy.deepcopy(value._metadata)
        return made
    if type(value) in (list, tuple):
        old = kept if type(kept) is type(value) and len(kept) == len(value) else [None] * len(value)
        return type(value)(kept_copy(one, its, on_host) for one, its in zip(value, old))
    return copy.deepcopy(value)


class Mark:
    """The values that a commit does not copy: constants, and tensors by identity, storage and version. Holds the
    tensors, and does not detect writes that keep the version, such as by `.data`."""

    def __init__(self, values: List[Any]) -> None:
        self._marks = [_mark(leaf) for leaf in _leaves(values)]

    def holds(self, values: List[Any]) -> bool:
        """Returns whether the values are unchanged."""
        leaves = _leaves(values)
        return len(leaves) == len(self._marks) and all(map(_is_same, self._marks, map(_mark, leaves)))


def _leaves(value: Any) -> List[Any]:
    found: List[Any] = []
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.keys()
            waiting += value.values()
        elif isinstance(value, (list, tuple)):
            waiting += value
        else:
            found.append(value)
    return found


def _mark(leaf: Any) -> Tuple[Any, ...]:
    if isinstance(leaf, torch.Tensor):
        try:
            return leaf, leaf.data_ptr(), leaf._version
        except RuntimeError:  # a tensor has no storage, or was made in inference mode
            return leaf, None, object()
    return leaf if isinstance(leaf, _CONSTANTS) else copy.deepcopy(leaf), None, None


def _is_same(one: Tuple[Any, ...], other: Tuple[Any, ...]) -> bool:
    if isinstance(one[0], torch.Tensor) or isinstance(other[0], torch.Tensor):
        return one[0] is other[0] and one[1:] == other[1:]
    try:
        return type(one[0]) is type(other[0]) and bool(one[0] == other[0])
    except (TypeError, ValueError, RuntimeError):  # for example for arrays; copying is always correct
        return False
