"""Tensors in GPU memory. If the process set has a backend for them (NCCL, which HOROVOD_GPU_OPERATIONS or a trial
chooses), the runtime gets them with an event of their stream. Otherwise they travel through pinned host memory.

This module was tested with a test double of CUDA, and not yet on a GPU.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

import torch

from horovod import _ops
from horovod.torch import _paths, _tensors


class Cuda:
    """The only place that calls torch.cuda."""

    def holds(self, tensor: Any) -> bool:
        return getattr(tensor, "is_cuda", False)

    def ordinal(self, tensor: torch.Tensor) -> int:
        return tensor.device.index

    def stream(self, device: int) -> Any:
        return torch.cuda.current_stream(device)

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def event(self, stream: Any) -> Any:
        """Returns an event after all work that is on the stream now."""
        event = torch.cuda.Event()
        event.record(stream)
        return event

    def pinned(self, like: torch.Tensor) -> torch.Tensor:
        """Returns a contiguous tensor in pinned host memory, for asynchronous copies."""
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

    def view(self, address: int, size: int, device: int) -> torch.Tensor:
        """Returns a tensor over device memory at the address."""
        return torch.as_tensor(_Bytes(address, size), device=torch.device("cuda", device))

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=torch.device("cuda", device))


class _Bytes:
    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, False)}


cuda: Any = Cuda()


def of(tensors: Sequence[Any], what: str) -> Optional[int]:
    """Returns the GPU that holds the tensors, or None for host memory. ValueError if they are in
    different places, or a graph is being captured."""
    if not any(map(cuda.holds, tensors)):
        return None
    if cuda.is_capturing():
        raise ValueError(
            f"{what}: the current stream captures a CUDA graph, and a graph cannot contain a "
            "collective; call it before or after the capture."
        )
    places = {cuda.ordinal(tensor) if cuda.holds(tensor) else -1 for tensor in tensors}
    if len(places) > 1:
        raise ValueError(f"{what}: its tensors are on different devices; move them to one.")
    return places.pop()


_runs: Dict[Tuple[Any, ...], int] = {}
_ops.also_forget(lambda process_set: _runs.clear())


def arrays_for(
    device: int, tensors: Sequence[torch.Tensor], kind: int, arguments: Dict[str, Any], process_set: int
) -> Any:
    """Returns the array functions that _frontend needs for tensors on `device`. They are equal on all ranks, but that
    Meanwhile on one rank fits to any on the others."""
    # The values of the factors decide nothing, and loss scaling makes ever new ones.
    has_factors = any(arguments.get(name, 1.0) not in (0, 1) for name in ("prescale", "postscale"))
    reduction = (arguments.get("reduce_op", _ops.Sum), 0.5 if has_factors else 1.0)
    is_tried = False
    for dtype in {tensor.dtype for tensor in tensors}:
        key = (kind, dtype, *reduction)
        if key not in _runs:
            known = _tensors.number_of(dtype)
            number = -1 if known is None else known
            _runs[key] = _ops.runs_on_device(kind, number, *reduction)
        if not _runs[key]:
            return Staged(device)
        is_tried |= _runs[key] == 2
    if is_tried:
        trial = _paths.trial_of(process_set, device)
        outcome = trial.outcome()
        if outcome is False:
            return Staged(device)
        if outcome is None or trial.device != device:
            return Meanwhile(device, trial.device)
    return OnDevice(device)


class OnDevice:
    """Tensors that the backend reads and writes in GPU memory."""

    is_staged = False
    check = staticmethod(_tensors.check_kind)
    is_complex = staticmethod(_tensors.is_complex)
    dense = staticmethod(_tensors.dense)
    describe = staticmethod(_tensors.describe)
    empty_like = staticmethod(_tensors.empty_like)
    copy = staticmethod(_tensors.copy)
    splits = staticmethod(_tensors.splits)

    def __init__(self, device: int) -> None:
        self._device = device

    def place(self) -> _ops.Place:
        stream = cuda.stream(self._device)
        event = cuda.event(stream)
        return _ops.Place(self._device, stream.cuda_stream, event.cuda_event, event)

    def take(self, output: _ops.RawOutput, like: torch.Tensor) -> torch.Tensor:
        tensor = cuda.empty(_tensors.shape_of(output, like), like.dtype, self._device)
        size = tensor.numel() * tensor.element_size()
        if output.address and size:
            lent = cuda.view(output.address, size, self._device)
            tensor.view(-1).view(torch.uint8).copy_(lent)
            # The runtime gets its memory back now.
            cuda.stream(self._device).synchronize()
        return tensor


class Staged:
    """Tensors that travel through host memory."""

    is_staged = True
    check = staticmethod(_tensors.check_kind)
    is_complex = staticmethod(_tensors.is_complex)
    describe = staticmethod(_tensors.describe)
    splits = staticmethod(_tensors.splits)

    def __init__(self, device: int) -> None:
        self._device = device

    def dense(self, tensor: torch.Tensor) -> torch.Tensor:
        host = cuda.pinned(tensor)
        host.copy_(tensor.detach(), non_blocking=True)
        # The runtime may read the copy at any time from now on.
        cuda.stream(self._device).synchronize()
        return host

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        # torch keeps pinned memory until copies from it are complete.
        with torch.no_grad():
            target.copy_(source, non_blocking=True)

    def take(self, output: _ops.RawOutput, like: torch.Tensor) -> torch.Tensor:
        host = _tensors.take(output, like)
        tensor = cuda.empty(host.shape, host.dtype, self._device)
        tensor.copy_(host)
        return tensor


class Meanwhile(Staged):
    """Tensors that travel through host memory, and that the backend of another rank may take from there: before this
    rank knows the outcome of the trial, or on another GPU than that of the trial, which is `own`."""

    def __init__(self, device: int, own: int) -> None:
        super().__init__(device)
        self._own = own

    def place(self) -> _ops.Place:
        return _ops.Place(self._own, 0, 0, None, _ops.STAGED)

    def take(self, output: _ops.RawOutput, like: torch.Tensor) -> torch.Tensor:
        if output.device < 0:
            return super().take(output, like)
        taken = OnDevice(output.device).take(output, like)
        if output.device == self._device:
            return taken
        return cuda.empty(taken.shape, taken.dtype, self._device).copy_(taken)
