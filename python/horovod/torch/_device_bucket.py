"""Small gradients in GPU memory that travel as one tensor: one kernel gathers them, another scatters them."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import torch

from horovod._ops import Kind
from horovod.torch import _devices, _submission

_ALIGNMENT = 64


def _copy(targets: List[torch.Tensor], sources: List[torch.Tensor]) -> None:
    """Copies each source to its target; pairs of equal layout share one kernel."""
    if hasattr(torch, "_foreach_copy_"):
        # A pair of different layouts would slow the kernel for all pairs, so these pairs are copied one by one.
        pairs = [(target, source) for target, source in zip(targets, sources) if not source.is_contiguous()]
        if not pairs:
            torch._foreach_copy_(targets, sources)
            return
        same = [(target, source) for target, source in zip(targets, sources) if source.is_contiguous()]
        if same:
            torch._foreach_copy_(*map(list, zip(*same)))
    else:
        pairs = list(zip(targets, sources))
    for target, source in pairs:
        target.copy_(source, non_blocking=True)


class DeviceBucket:
    """The gradients of `params`, all of one dtype and on one GPU, as one request of one tensor.

    Has the interface of GradientBucket. The host never reads the tensor, so the tensor carries no notice.
    """

    carries_notices = False
    interrupted: Optional[int] = None

    def __init__(self, params: List[torch.Tensor]) -> None:
        self.params = params
        # The slots keep their dtype and device even if a model changes dtype or device.
        self._dtype, self._device = params[0].dtype, params[0].device
        self._ordinal, self._shapes = _devices.cuda.ordinal(params[0]), [param.shape for param in params]
        self._step = max(1, _ALIGNMENT // params[0].element_size())
        self._slots: List[torch.Tensor] = []  # views of `_flat`
        self._flat: Any = None
        self._grads: List[torch.Tensor] = []  # gradients to copy back, from gather to scatter
        self._used: List[torch.Tensor] = []  # slots of these gradients

    def _allocate(self) -> None:
        starts, end = [], 0
        for shape in self._shapes:
            starts.append(end)
            end += -(-shape.numel() // self._step) * self._step
        # Zero the padding between the slots: the ranks reduce it too, and uninitialised values could be NaN.
        self._flat = _devices.cuda.empty((end,), self._dtype, self._ordinal).zero_()
        self._slots = [
            self._flat[start : start + shape.numel()].view(shape) for start, shape in zip(starts, self._shapes)
        ]

    def takes(self, index: int, grad: torch.Tensor) -> bool:
        """Returns whether the gradient fits into the slot, regardless of its device and memory order."""
        return grad.layout is torch.strided and grad.dtype == self._dtype and grad.numel() == self._slots[index].numel()

    def slot(self, index: int, grad: torch.Tensor) -> torch.Tensor:
        """Returns a tensor over the slot, in the shape of its gradient."""
        return self._slots[index].view(grad.shape)

    def run(self, terms: tuple) -> bool:
        """Returns False: the caller uses gather, submit and scatter, which a host bucket combines in one call."""
        return False

    def gather(self) -> Sequence[int]:
        """Copies the gradients into their slots. Returns the indices of unusable gradients, which are missing, sparse,
        on another device, or of another dtype or shape; their slots become zero."""
        if self._flat is None:
            self._allocate()
        grads: List[Any] = [param.grad for param in self.params]
        dtype, device, strided = self._dtype, self._device, torch.strided
        others = [
            index
            for index, (grad, slot) in enumerate(zip(grads, self._slots))
            if grad is None
            or grad.layout is not strided
            or grad.dtype is not dtype
            or grad.device != device
            or grad.shape != slot.shape
        ]
        self._grads, self._used = grads, self._slots
        if others:
            for index in others:
                self._slots[index].zero_()
            usable = [index for index in range(len(grads)) if index not in set(others)]
            self._grads, self._used = [grads[index] for index in usable], [self._slots[index] for index in usable]
        if self._grads:
            _copy(self._used, self._grads)
        return others

    def submit(self, terms: tuple) -> int:
        """Submits the request for the gathered gradients; returns its handle."""
        name, reduce_op, prescale, postscale, process_set = terms
        return _submission.elementwise(
            Kind.ALLREDUCE,
            name,
            [self._flat],
            True,
            reduce_op=reduce_op,
            prescale=prescale,
            postscale=postscale,
            process_set=process_set,
        )

    def scatter(self) -> None:
        """Copies the slots back to the gradients."""
        grads, slots = self._grads, self._used
        self._grads, self._used = [], []
        if grads:
            with torch.no_grad():
                _copy(grads, slots)
