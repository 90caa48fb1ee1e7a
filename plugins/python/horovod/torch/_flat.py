"""Small gradients that travel as one tensor, in memory that the ranks of a host reduce directly."""

from __future__ import annotations

import ctypes
from typing import List, Sequence

import torch

from horovod import _basics, _memory, _native
from horovod.torch import _submission, _tensors

_ALIGNMENT = 64

# Bytes of one gradient, and of all that wait for the end of backward. On one host nothing travels
# meanwhile that the ranks' own cores would not have to move; between hosts what is large leaves
# early.
_ON_ONE_HOST = (4 << 20, 16 << 20)
_BETWEEN_HOSTS = (64 << 10, 1 << 20)


def choose(params: Sequence[torch.Tensor]) -> List[List[torch.Tensor]]:
    """Those of `params` that had better travel together, by dtype; the same on all ranks.

    The first parameters of a model are the last to get gradients, so that they lose least by
    waiting for the end of backward.
    """
    largest, left = _ON_ONE_HOST if _basics.size() == _basics.local_size() else _BETWEEN_HOSTS
    chosen: dict = {}
    for param in params:
        size = param.numel() * param.element_size()
        if (0 < size <= min(largest, left) and param.requires_grad and param.is_cpu
                and param.layout is torch.strided and param.dtype in _tensors.DTYPES):
            left -= size
            chosen.setdefault(param.dtype, []).append(param)
    return [members for members in chosen.values() if len(members) > 1]


class Flat:
    """Slots beside each other for the gradients of `params`, all of one dtype."""

    def __init__(self, params: List[torch.Tensor]) -> None:
        self.params = params
        self._held: list = [None] * len(params)  # from gather to scatter
        self._residents: list = [None] * len(params)  # gradients that live in their slots
        self._repeats = 0  # steps with the gradients of the step before
        self._may_settle = True
        self._allocate()

    def _allocate(self) -> None:
        element, at = self.params[0].element_size(), 0
        self._slots = []
        for param in self.params:
            self._slots.append((at, param.numel()))
            at += -(-param.numel() * element // _ALIGNMENT) * _ALIGNMENT
        self._memory = _memory.lend(at)
        dtype = self.params[0].dtype
        self.tensor = torch.frombuffer(self._memory, dtype=dtype)
        self._native = _native.flat_new(ctypes.addressof(self._memory), _tensors.DTYPES[dtype],
                                        element, self._slots)

    def takes(self, index: int, grad: torch.Tensor) -> bool:
        """Whether the slot has room for a gradient of this kind, wherever and however it lies."""
        return (grad.layout is torch.strided and grad.dtype == self.tensor.dtype
                and grad.numel() == self._slots[index][1])

    def slot(self, index: int) -> torch.Tensor:
        """A tensor over the slot, in the shape of its parameter."""
        at, count = self._slots[index]
        dense = torch.frombuffer(self._memory, dtype=self.tensor.dtype, count=count, offset=at)
        return dense.view(self.params[index].shape)

    def gather(self) -> Sequence[int]:
        """Brings the gradients into their slots; returns those that did not go, whose slots are
        zero: missing ones, and those that are not dense, in host memory and of the right dtype."""
        found = self._native_gather()
        if found == -1:
            # Somebody took a gradient that lives here, and may look at it for as long as he likes.
            self._allocate()
            self._residents = [None] * len(self.params)
            self._may_settle = False
            found = self._native_gather()
        self._repeats = self._repeats + 1 if found is True else 0
        return found if isinstance(found, list) else ()

    def _native_gather(self):
        return _native.flat_gather(self._native, self.params, self._residents, self._held,
                                   _submission.PLAIN)

    def scatter(self) -> None:
        """Brings what is in the slots back to the gradients that came from elsewhere."""
        _native.flat_scatter(self._native)
        if self._repeats >= 3 and self._may_settle:
            self._settle()
        self._held = [None] * len(self.params)

    def _settle(self) -> None:
        # Gradients that stay from step to step can as well live here: nothing is copied then.
        self._may_settle = False
        if any(grad._base is not None or grad.storage_offset() or _storage_bytes(grad)
               != grad.numel() * grad.element_size() for grad in self._held):
            return  # somebody has a place for them
        for index, grad in enumerate(self._held):
            grad.data = self.slot(index)
            self._residents[index] = grad


def _storage_bytes(tensor: torch.Tensor) -> int:
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage().nbytes()
    return tensor.storage().nbytes()
