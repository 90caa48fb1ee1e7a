"""Tensors in GPU memory. If the process set has a GPU backend (NCCL, which HOROVOD_GPU_OPERATIONS or a trial selects),
the runtime receives such tensors with an event of their stream. Otherwise the tensors travel through pinned host
memory: streams of this module copy the data, and no thread waits for a stream.

Tests have run this module with a test double of CUDA, but not yet on a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from horovod import _basics, _native, _ops
from horovod.process_sets import ProcessSet
from horovod.torch import _paths, _tensors


class Cuda:
    """The only class that calls torch.cuda."""

    def holds(self, tensor: Any) -> bool:
        return getattr(tensor, "is_cuda", False)

    def ordinal(self, tensor: torch.Tensor) -> int:
        return tensor.device.index

    def stream(self, device: int) -> Any:
        return torch.cuda.current_stream(device)

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def event(self, stream: Any) -> Any:
        """Returns an event after all work now queued on the stream. Raises RuntimeError if the device has failed."""
        event = torch.cuda.Event()
        event.record(stream)
        return event

    def new_stream(self, device: int) -> Any:
        return torch.cuda.Stream(device)

    def on(self, stream: Any) -> Any:
        """Returns a context in which the stream is the current stream."""
        return torch.cuda.stream(stream)

    def wait(self, stream: Any, other: Any) -> None:
        """Makes the stream wait for all work now queued on the other stream."""
        stream.wait_stream(other)

    def forget_error(self) -> None:
        """Clears the error that a failed call of this thread left: torch would raise it after its next kernel."""
        take = _address("GetLastError")
        if take:
            ctypes.CFUNCTYPE(ctypes.c_int)(take)()

    def launcher(self) -> int:
        """Returns the address of cudaLaunchHostFunc or hipLaunchHostFunc; 0 if it is missing."""
        return _address("LaunchHostFunc")

    def fast_path(self) -> Optional[Tuple[Any, ...]]:
        """Returns all but the last two arguments of _native.use_devices, or None if a required one is missing."""
        found = (*map(_address, EVENT_FUNCTIONS), torch.Tensor, getattr(torch._C, "_cuda_getCurrentRawStream", None))
        # EventQuery and ThreadExchangeStreamCaptureMode are needed only with HOROVOD_ENABLE_ASYNC_COMPLETION.
        return found if all(found[:6] + found[8:]) else None

    def pinned(self, like: torch.Tensor) -> torch.Tensor:
        """Returns a contiguous tensor in pinned host memory, for asynchronous copies."""
        return torch.empty(like.shape, dtype=like.dtype, device="cpu", pin_memory=True)

    def view(self, address: int, size: int, device: int) -> torch.Tensor:
        """Returns a tensor over device memory at the address."""
        return torch.as_tensor(_Bytes(address, size), device=torch.device("cuda", device))

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=torch.device("cuda", device))


class _Bytes:
    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, False)}


# In the order in which _native.use_devices takes their addresses.
EVENT_FUNCTIONS = (
    "EventCreateWithFlags",
    "EventDestroy",
    "EventRecord",
    "StreamIsCapturing",
    "GetDevice",
    "GetLastError",
    "EventQuery",
    "ThreadExchangeStreamCaptureMode",
)


@functools.lru_cache(maxsize=None)
def _address(name: str) -> int:
    """Returns the address of a function of the CUDA or HIP runtime that torch has loaded; 0 if it is missing."""
    prefix, found = "hip" if torch.version.hip else "cuda", None
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            paths = {line.split(None, 5)[-1].rstrip("\n") for line in maps if ".so" in line}
    except OSError:
        paths = set()
    names = {"cuda": "libcudart", "hip": "libamdhip64"}
    for path in [None, *sorted(path for path in paths if names[prefix] in path)]:
        with contextlib.suppress(OSError):  # the file was deleted
            found = found or getattr(ctypes.CDLL(path), prefix + name, None)
    return (ctypes.cast(found, ctypes.c_void_p).value or 0) if found else 0


cuda: Any = Cuda()


class _CopyStreams(NamedTuple):
    """The streams that copy tensors of one device to host memory, and results back."""

    out: Any
    back: Any


_copy_streams: Dict[int, _CopyStreams] = {}


def _streams_of(device: int) -> _CopyStreams:
    found = _copy_streams.get(device)
    return found or _copy_streams.setdefault(device, _CopyStreams(cuda.new_stream(device), cuda.new_stream(device)))


def _wait_for_copies(limit: Optional[float] = None) -> None:
    # A copy does not wait for other ranks.
    for streams in list(_copy_streams.values()):
        with contextlib.suppress(RuntimeError):  # the device has failed
            streams.out.synchronize()


_ops.also_complete(_wait_for_copies)


def of(tensors: Sequence[Any], what: str) -> Optional[int]:
    """Returns the GPU that holds the tensors, or None for host memory. Raises ValueError if their devices differ, or
    during the capture of a graph."""
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
    """Returns the array functions that _frontend needs for tensors on `device`. All ranks get the same kind, except
    that Meanwhile on one rank matches every kind on the others."""
    # The decision ignores the values of the factors, because loss scaling changes the values in each step.
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


# Maximum number of bytes of pinned host memory that a broadcast of a model uses at once.
STAGED_BYTES = 256 << 20


def staged_size(tensor: Any) -> int:
    """Returns the bytes of pinned host memory that a broadcast of the tensor needs. torch keeps such memory until the
    process ends. Waits for a trial of the backend first, because the tensor needs no such memory if the trial
    succeeds."""
    if not cuda.holds(tensor):
        return 0
    device = cuda.ordinal(tensor)
    if _ops.runs_on_device(_ops.Kind.BROADCAST, _ops.Dtype.UINT8) == 2:
        _paths.trial_of(0, device).outcome(waits=True)
    is_staged = arrays_for(device, [tensor], _ops.Kind.BROADCAST, {}, 0).is_staged
    return tensor.numel() * tensor.element_size() if is_staged else 0


# Work that the native module may submit: the keys of _runs with the device.
_fast: Dict[Tuple[Any, ...], bool] = {}
_ops.also_forget(lambda process_set: _fast.clear())


@functools.lru_cache(maxsize=None)
def _begin_fast_path() -> None:
    found = cuda.fast_path()
    if found is not None:
        _native.use_devices(*found, _fast, _cycle())


def _cycle() -> float:
    """Returns the seconds of a cycle if waits return before the work completes (HOROVOD_ENABLE_ASYNC_COMPLETION), else
    -1."""
    if os.environ.get("HOROVOD_ENABLE_ASYNC_COMPLETION", "").strip().lower() not in ("1", "true", "yes", "on"):
        return -1.0
    try:
        return float(os.environ.get("HOROVOD_CYCLE_TIME", "").strip() or 1) / 1000
    except ValueError:
        return 0.001


def use_fast_path(kind: int, tensors: Sequence[torch.Tensor], arguments: Dict[str, Any], device: int) -> None:
    """Lets the native module submit such tensors of all ranks, which the backend reads and writes in the memory of this
    GPU. Tensors on another GPU may have to go through host memory."""
    if arguments.get("process_set", 0) == 0:
        _begin_fast_path()
        has_factors = any(arguments.get(name, 1.0) not in (0, 1) for name in ("prescale", "postscale"))
        for tensor in tensors:
            key = (kind, tensor.dtype, arguments.get("reduce_op", _ops.Sum), 0.5 if has_factors else 1.0, device)
            _fast[key] = True


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
        self._is_copying = False

    def place(self) -> _ops.Place:
        _begin_fast_path()
        ready = _native.ready_stream(self._device)
        if ready is not None:
            return _ops.Place(self._device, ready, 0, flags=_ops.STREAM_ORDERED)
        stream = cuda.stream(self._device)
        event = cuda.event(stream)
        return _ops.Place(self._device, stream.cuda_stream, event.cuda_event, event)

    def scattered(self, dense: torch.Tensor, process_set: ProcessSet) -> Optional[torch.Tensor]:
        if dense.dim() == 0 or not process_set.included():
            return None  # the runtime refuses such a call
        rows, longer = divmod(dense.shape[0], process_set.size())
        rows += process_set.rank() < longer
        return cuda.empty((rows, *dense.shape[1:]), dense.dtype, self._device)

    def take(self, output: _ops.RawOutput, like: torch.Tensor) -> torch.Tensor:
        tensor = cuda.empty(_tensors.shape_of(output, like), like.dtype, self._device)
        size = tensor.numel() * tensor.element_size()
        if output.address and size:
            lent = cuda.view(output.address, size, self._device)
            tensor.view(-1).view(torch.uint8).copy_(lent, non_blocking=True)
            self._is_copying = True
        return tensor

    def all_taken(self) -> None:
        # The runtime reclaims its memory after this call. Wait for the copies unless the stream orders them.
        if self._is_copying:
            self._is_copying = False
            if not _native.is_finishing_early():
                cuda.stream(self._device).synchronize()


class Staged:
    """Tensors of one submission that travel through host memory.

    One stream copies them to host memory, and then starts the work by hvd_start. Another stream copies the results
    back, and the caller's stream waits for that stream. The first stream may use the caller's memory until the work is
    complete, so this object keeps the tensors.
    """

    is_staged = True
    check = staticmethod(_tensors.check_kind)
    is_complex = staticmethod(_tensors.is_complex)
    describe = staticmethod(_tensors.describe)
    splits = staticmethod(_tensors.splits)

    def __init__(self, device: int) -> None:
        self._device = device
        self._caller = cuda.stream(device)
        self._streams = _streams_of(device)
        self._tensors: Sequence[torch.Tensor] = ()  # tensors that the first stream may still read
        self._has_new_results = False

    def __del__(self) -> None:
        # The work has failed, or the program has dropped its results. torch reuses memory in the order of the stream.
        if self._tensors and not sys.is_finalizing():
            with contextlib.suppress(RuntimeError):  # the device has failed
                cuda.wait(self._caller, self._streams.out)

    def dense_all(self, tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
        self._tensors = list(tensors)
        cuda.wait(self._streams.out, self._caller)
        with cuda.on(self._streams.out), torch.no_grad():
            # torch keeps pinned memory until copies from and to it are complete.
            return [cuda.pinned(tensor).copy_(tensor, non_blocking=True) for tensor in tensors]

    def empty_like(self, dense: torch.Tensor) -> torch.Tensor:
        self._has_new_results = True
        return cuda.empty(dense.shape, dense.dtype, self._device)

    def place(self) -> _ops.Place:
        return _ops.Place(_ops.HOST, 0, 0, self, self._start, self._check)

    def _start(self, handle: int) -> None:
        launcher, out = cuda.launcher(), self._streams.out
        with cuda.on(out):  # the stream's device must be the current device
            error = _native.start_after(launcher, out.cuda_stream, handle) if launcher else 1
        if error:
            cuda.forget_error()
            out.synchronize()  # raises if the device has failed
            _native.start_after(0, 0, handle)

    def _check(self) -> None:
        try:
            cuda.event(self._streams.out)
        except RuntimeError as error:
            raise RuntimeError(
                f"rank {_basics.rank()}: GPU {self._device} has failed before its tensors were in host memory: {error}"
            ) from error

    def copy_all(self, copies: Sequence[Tuple[torch.Tensor, torch.Tensor]]) -> None:
        self._tensors = ()
        stream, back = cuda.stream(self._device), self._streams.back
        if self._has_new_results:  # earlier work may still use the memory of the results
            cuda.wait(back, stream)
        with cuda.on(back), torch.no_grad():
            for target, source in copies:
                target.copy_(source, non_blocking=True)
        cuda.wait(stream, back)
        if self._caller != stream:
            cuda.wait(self._caller, back)

    def take(self, output: _ops.RawOutput, like: torch.Tensor) -> torch.Tensor:
        self._tensors = ()
        tensor = cuda.empty(_tensors.shape_of(output, like), like.dtype, self._device)
        size = tensor.numel() * tensor.element_size()
        if output.address and size:
            host = cuda.pinned(tensor)
            ctypes.memmove(host.data_ptr(), output.address, size)
            self._has_new_results = True
            self.copy_all([(tensor, host)])
        return tensor


class Meanwhile(Staged):
    """Tensors that travel through host memory, where the backend of another rank may also read them: this rank does not
    know the outcome of the trial yet, or the tensors are on another GPU than `own`, the trial's GPU."""

    def __init__(self, device: int, own: int) -> None:
        super().__init__(device)
        self._own = own

    def place(self) -> _ops.Place:
        return super().place()._replace(device=self._own, flags=_ops.STAGED)

    def take(self, output: _ops.RawOutput, like: torch.Tensor) -> torch.Tensor:
        if output.device < 0:
            return super().take(output, like)
        lender = OnDevice(output.device)
        taken = lender.take(output, like)
        lender.all_taken()
        if output.device == self._device:
            return taken
        return cuda.empty(taken.shape, taken.dtype, self._device).copy_(taken)
