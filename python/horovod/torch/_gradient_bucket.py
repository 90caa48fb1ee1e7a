"""Small gradients that travel as one tensor, in memory that the ranks of a host reduce directly."""

from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Sequence

import torch

from horovod import _basics, _memory, _native
from horovod.torch import _devices, _submission, _tensors
from horovod.torch._device_bucket import DeviceBucket

_ALIGNMENT = 64
# A gradient of at least _LARGE bytes is a separate tensor in the request, because copying it would cost more than
# describing it. _MOST_APART limits the number of such tensors.
_LARGE = 16 << 10
_MOST_APART = 100
# A bit pattern that is a positive number of at most 2 in every floating-point type.
_NOTICE = 0x3F3F3F3F3F3F3F3F

# The maximum size of one gradient, and of all gradients, that wait for the end of the backward pass. On one host the
# ranks' own cores move the data, so starting early has no benefit. Between hosts, large gradients start early. Large
# gradients on GPUs also start early, because no core of the ranks moves them.
_ON_ONE_HOST = (4 << 20, 16 << 20)
_BETWEEN_HOSTS = (64 << 10, 1 << 20)


def choose(params: Sequence[torch.Tensor]) -> List[List[torch.Tensor]]:
    """Returns the lists of `params` that travel together, one per dtype and device; equal on all ranks.

    The first parameters of a model get their gradients last, so the wait for the end of the backward pass costs them
    least.
    """
    # In an elastic job, new ranks must make the same choice as the ranks that began on one host.
    is_one_host = _basics.size() == _basics.local_size() and not _basics.is_elastic()
    limits = {False: _ON_ONE_HOST if is_one_host else _BETWEEN_HOSTS, True: _BETWEEN_HOSTS}  # key: on a GPU
    lefts = {on_gpu: left for on_gpu, (_, left) in limits.items()}
    chosen: dict = {}
    for param in params:
        size, on_gpu = param.numel() * param.element_size(), _devices.cuda.holds(param)
        largest, left = limits[on_gpu][0], lefts[on_gpu]
        if (
            0 < size <= min(largest, left)
            and param.requires_grad
            and _is_usable(param)
            and param.layout is torch.strided
            and param.dtype in _tensors.DTYPES
        ):
            lefts[on_gpu] -= size
            chosen.setdefault((param.dtype, param.device), []).append(param)
    return [members for members in chosen.values() if len(members) > 1]


def _is_usable(param: torch.Tensor) -> bool:
    return param.is_cpu or _devices.cuda.holds(param)


def make(params: List[torch.Tensor]) -> Any:
    """Returns a bucket for a list of parameters from `choose`."""
    kind = DeviceBucket if _devices.cuda.holds(params[0]) else GradientBucket
    return kind(params)


class GradientBucket:
    """The gradients of `params`, all of one dtype, as one request: small gradients lie in adjacent
    slots, and large ones in their own memory."""

    carries_notices = True

    def __init__(self, params: List[torch.Tensor]) -> None:
        self.params = params
        # The slots keep their dtype even if a model changes dtype or device.
        self._dtype, self._element = params[0].dtype, params[0].element_size()
        self._counts = [param.numel() for param in params]
        self._repeats = 0  # consecutive steps with the same gradient tensors
        self._may_settle = True
        self._was_same = False
        self._has_notice = False
        self._allocate()

    def _allocate(self) -> None:
        large = sorted(range(len(self.params)), key=self._bytes)[-_MOST_APART:]
        self._apart = {index for index in large if self._bytes(index) >= _LARGE}
        self._offsets, end = [], 0
        for index in range(len(self.params)):
            self._offsets.append(end)
            if index not in self._apart:
                end += -(-self._bytes(index) // _ALIGNMENT) * _ALIGNMENT
        self._memory = _memory.registered_buffer(end + _ALIGNMENT)
        # The last elements carry the notice: they are zero, except on a rank with a notice.
        self._notice = ctypes.c_uint64.from_buffer(self._memory, end)
        end += _ALIGNMENT
        self.set_notice(self._has_notice)
        start = ctypes.addressof(self._memory)
        self._native = _native.bucket_new(
            start,
            end // self._element,
            _tensors.DTYPES[self._dtype],
            self._element,
            [
                (0 if index in self._apart else start + self._offsets[index], count)
                for index, count in enumerate(self._counts)
            ],
        )
        self.interrupted: Optional[int] = None  # the handle of the running request, if a signal handler raised in `run`
        self._spares: dict = {}  # by index: memory that replaces a large gradient that cannot be reduced in place
        self._residents: list = [None] * len(self.params)  # gradients whose memory is their slot
        self._hold_nothing()

    def _bytes(self, index: int) -> int:
        return self._counts[index] * self._element

    def _hold_nothing(self) -> None:
        self._held: list = [None] * len(self.params)  # gradients between gather and scatter
        self._keep = [self._held, self._memory, self._spares]
        self._lists = (self.params, self._residents, self._held, self._keep, _submission.PLAIN)

    def set_notice(self, has_notice: bool) -> None:
        """Sets whether this rank has a notice, which all ranks read by `has_notice` after the reduction. Works with Sum
        and Average, which preserve nonzero values."""
        self._has_notice = has_notice
        self._notice.value = _NOTICE if has_notice else 0

    def has_notice(self) -> bool:
        """Returns whether a rank had a notice in the completed reduction, and resets the answer."""
        if not self._notice.value:
            return False
        self.set_notice(False)
        return True

    def takes(self, index: int, grad: torch.Tensor) -> bool:
        """Returns whether the gradient fits into the slot, regardless of its device and memory order."""
        return grad.layout is torch.strided and grad.dtype == self._dtype and grad.numel() == self._counts[index]

    def slot(self, index: int, grad: torch.Tensor) -> torch.Tensor:
        """Returns a tensor over the slot, in the shape of its gradient."""
        if index in self._apart:
            return self._spares[index].view(grad.shape)
        flat = torch.frombuffer(self._memory, dtype=self._dtype, count=grad.numel(), offset=self._offsets[index])
        return flat.view(grad.shape)

    def run(self, terms: tuple) -> bool:
        """Reduces the gradients in place, by the terms (name, op, prescale, postscale, process set). Returns False,
        without a request, if a gradient is unusable. If a signal handler interrupts the call, `interrupted` is the
        handle of the running request, and `scatter` completes the reduction."""
        self.interrupted = None
        try:
            found = _native.bucket_run(self._native, self._lists, terms)
        except BaseException:
            if self._keep[-1] is not self._spares:
                self.interrupted = self._keep.pop()
                self._was_same = False
            else:
                self._hold_nothing()
            raise
        if found is not True and found is not False:
            return False
        self._finished(found)
        return True

    def gather(self) -> Sequence[int]:
        """Copies the gradients into their slots. Returns the indices of unusable gradients, which are missing, not
        dense, outside of host memory, or of another dtype or size; their slots become zero."""
        found = _native.bucket_gather(self._native, self._lists)
        if found == -1:
            # The program holds a gradient in this memory and may read it later, so allocate new memory.
            self._may_settle = False
            self._allocate()
            found = _native.bucket_gather(self._native, self._lists)
        self._was_same = found is True
        if not isinstance(found, list):
            return ()
        for index in self._apart.intersection(found) - self._spares.keys():
            spare = torch.zeros(self._counts[index], dtype=self._dtype, device="cpu")
            _native.bucket_place(self._native, index, spare.data_ptr())
            self._spares[index] = spare
        return found

    def submit(self, terms: tuple) -> int:
        """Submits the request for the gathered gradients; returns its handle."""
        return _native.bucket_submit(self._native, terms, self._keep)

    def scatter(self) -> None:
        """Copies the slots back to the gradients that lie elsewhere."""
        _native.bucket_scatter(self._native)
        self._finished(self._was_same)

    def _finished(self, same: bool) -> None:
        self._repeats = self._repeats + 1 if same else 0
        if self._repeats >= 3 and self._may_settle:
            self._settle()
        self._hold_nothing()

    def _settle(self) -> None:
        # Gradients that persist between steps move into the slots, so that later steps copy nothing.
        self._may_settle = False
        if any(
            grad._base is not None
            or grad.storage_offset()
            or _storage_bytes(grad) != grad.numel() * grad.element_size()
            for grad in self._held
        ):
            return  # the gradients are views of other memory
        for index, grad in enumerate(self._held):
            if index in self._apart:
                shared = torch.frombuffer(_memory.registered_buffer(self._bytes(index)), dtype=self._dtype)
                grad.data = shared.view(grad.shape).copy_(grad)
            else:
                grad.data = self.slot(index, grad)
                self._residents[index] = grad


def _storage_bytes(tensor: torch.Tensor) -> int:
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage().nbytes()
    return tensor.storage().nbytes()
