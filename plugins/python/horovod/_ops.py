"""The op layer: from addresses, shapes and dtypes to completed work. Knows no framework.

A framework module converts its tensors, calls `submit` and hands out the handle; everything that
all frameworks share (names, waiting, errors, what must stay alive) happens here, once.
Any thread may call; a wait on the main thread lets signals such as Ctrl-C through.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import itertools
import os
import struct
import threading
from typing import Any, Callable, NamedTuple, NoReturn, Optional, Sequence

from horovod._library import Output as _COutput
from horovod._library import library
from horovod.exceptions import (
    HorovodDisagreementError,
    HorovodInternalError,
    HorovodUnimplementedError,
)

Average, Sum, Adasum, Min, Max, Product = range(6)  # hvd_reduce_op


class Kind(enum.IntEnum):
    """hvd_op_kind."""

    ALLREDUCE = 0
    ALLGATHER = 1
    BROADCAST = 2
    JOIN = 3
    ALLTOALL = 5
    BARRIER = 6
    REDUCESCATTER = 7


class Dtype(enum.IntEnum):
    """hvd_dtype."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BOOL = 9
    BFLOAT16 = 10
    UINT32 = 11
    UINT64 = 12


_OK = 0
_INVALID_ARGUMENT = 1
_ALREADY_EXISTS = 8
_UNIMPLEMENTED = 9
_IN_PROGRESS = 11

# Seconds that a wait on the main thread stays in C, where Python cannot run a signal's handler.
_SLICE = 0.1
_ERROR_SIZE = 4096

# struct hvd_submission and struct hvd_tensor: all members lie at their natural alignment.
_SUBMISSION = struct.Struct("@NiiPiiiiddPPIIPP")
_TENSOR = struct.Struct("@PiiPPP")


class Tensor(NamedTuple):
    """One dense, row-major tensor of a submission, as the C ABI sees it."""

    input: int  # address; 0 when empty
    output: int  # address; 0 where the runtime owns the output
    dtype: int
    shape: Sequence[int]
    name: Optional[str] = None  # of a group's member


class RawOutput(NamedTuple):
    """An output in the runtime's memory, valid only inside `finish`."""

    address: int  # 0 when empty
    dtype: int
    shape: tuple
    received_splits: Optional[list]
    last_joined_rank: int


class _Scratch:
    """Memory that one call lends to C: the packed submission, a handle and the error text."""

    def __init__(self, size: int = 1024) -> None:
        self.buffer = ctypes.create_string_buffer(size)
        self.address = ctypes.addressof(self.buffer)
        self.handle = ctypes.c_uint64()
        self.handle_address = ctypes.addressof(self.handle)
        self.error = ctypes.create_string_buffer(_ERROR_SIZE)
        self.error_address = ctypes.addressof(self.error)


class _State:
    """What is in flight in this process."""

    def __init__(self) -> None:
        # By handle: `finish`, and whatever owns the memory that the runtime reads and writes.
        self.pending: dict[int, tuple[Callable[[int], Any], Any]] = {}
        self.abandoned: list[int] = []  # handles that no caller holds any more
        self.scratch: list[_Scratch] = []  # not in use; append and pop are atomic
        self.counters: dict[str, Any] = {}
        self.forked = False  # whether this process is the child of a rank, and no rank itself

    def note_fork(self) -> None:
        opened = library.cache_info().currsize > 0
        self.forked = opened and library().hvd_is_initialized() != 0


_state = _State()
os.register_at_fork(after_in_child=_state.note_fork)


def auto_name(op: str) -> str:
    """`<op>.noname.<n>`: the same on all ranks that make their unnamed calls in the same order."""
    counter = _state.counters.get(op)
    if counter is None:
        counter = _state.counters.setdefault(op, itertools.count(1))
    return f"{op}.noname.{next(counter)}"


def full_name(op: str, name: Optional[str]) -> str:
    """The name under which ranks meet: the operation is a part of it."""
    return auto_name(op) if name is None else f"{op}.{name}"


def submit(
    kind: int,
    name: Optional[str],
    tensors: Sequence[Tensor] = (),
    *,
    keep: Any = None,
    finish: Callable[[int], Any],
    reduce_op: int = Sum,
    root_rank: int = 0,
    process_set: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    splits: Sequence[int] = (),
) -> int:
    """Hands work to the runtime and returns its handle at once.

    `keep` stays referenced until the work is complete. `finish(handle)` runs in the thread that
    waits, after success; what it returns is the result of `wait`.

    Raises ValueError for a value that cannot be right or a name that is in flight, and
    HorovodInternalError when Horovod is not running.
    """
    if _state.forked:
        raise HorovodInternalError(
            f"{name or kind.name.lower()}: this process was forked from a rank, and only the rank "
            "itself can take part in collectives; start such processes before hvd.init(), or use "
            "the 'spawn' method."
        )
    if not prescale or not postscale:
        raise ValueError(f"{name}: a prescale or postscale factor of 0 leaves nothing to reduce.")
    if _state.abandoned:
        _sweep()
    scratch = _state.scratch.pop() if _state.scratch else _Scratch()
    scratch = _pack(
        scratch, kind, name, tensors, reduce_op, root_rank, process_set, prescale, postscale, splits
    )
    status = library().hvd_submit(
        scratch.address, scratch.handle_address, scratch.error_address, _ERROR_SIZE
    )
    handle = scratch.handle.value
    if status == _OK:
        _state.pending[handle] = (finish, keep)
        _state.scratch.append(scratch)
        return handle
    _fail(status, scratch, negotiated=False)


def _pack(scratch, kind, name, tensors, reduce_op, root_rank, process_set, prescale, postscale,
          splits) -> _Scratch:
    """Lays out the submission, its tensors, their shapes, the splits and the names, one after the
    other: in this order each part is aligned."""
    texts = [tensor.name.encode() + b"\0" if tensor.name else b"" for tensor in tensors]
    text = name.encode() + b"\0" if name else b""
    extents = [extent for tensor in tensors for extent in tensor.shape]
    count = len(tensors)
    shapes_at = _SUBMISSION.size + count * _TENSOR.size
    splits_at = shapes_at + 8 * len(extents)
    text_at = splits_at + 4 * len(splits)
    all_text = text + b"".join(texts)
    if text_at + len(all_text) > len(scratch.buffer):
        scratch = _Scratch(2 * (text_at + len(all_text)))
    base = scratch.address
    values = [
        _SUBMISSION.size, kind, reduce_op, base + text_at if text else 0,
        process_set, root_rank, -1, 0,  # -1 is HVD_CPU
        prescale, postscale, 0, 0, count, len(splits),
        base + _SUBMISSION.size if count else 0, base + splits_at if splits else 0,
    ]
    shape_address = base + shapes_at
    text_address = base + text_at + len(text)
    for tensor, member in zip(tensors, texts):
        ndim = len(tensor.shape)
        values += (
            text_address if member else 0, tensor.dtype, ndim, shape_address, tensor.input,
            tensor.output,
        )
        shape_address += 8 * ndim
        text_address += len(member)
    _layout(count, len(extents), len(splits), len(all_text)).pack_into(
        scratch.buffer, 0, *values, *extents, *splits, all_text
    )
    return scratch


@functools.lru_cache(maxsize=1024)
def _layout(tensors: int, extents: int, splits: int, text: int) -> struct.Struct:
    return struct.Struct(
        _SUBMISSION.format + _TENSOR.format[1:] * tensors + f"{extents}q{splits}i{text}s"
    )


def poll(handle: int) -> bool:
    """Whether the work is complete, failed or not. ValueError for a handle that is not known."""
    if handle not in _state.pending:
        raise ValueError(f"Handle {handle} is not one that waits to be synchronized.")
    scratch = _state.scratch.pop() if _state.scratch else _Scratch()
    done = ctypes.c_int32()
    status = library().hvd_poll(
        handle, ctypes.addressof(done), scratch.error_address, _ERROR_SIZE
    )
    if status != _OK:
        _fail(status, scratch, negotiated=False)
    _state.scratch.append(scratch)
    return done.value != 0


def is_pending(handle: int) -> bool:
    """Whether `handle` was submitted and not yet waited for."""
    return handle in _state.pending


def wait(handle: int) -> Any:
    """Waits until the work is complete, ends the claim on it and returns what `finish` makes.

    Interrupted by a signal's handler that raises, the handle stays valid.
    """
    pending = _state.pending.get(handle)
    if pending is None:
        raise ValueError(f"Handle {handle} is not one that waits to be synchronized.")
    scratch = _state.scratch.pop() if _state.scratch else _Scratch()
    seconds = _SLICE if threading.current_thread() is threading.main_thread() else -1.0
    hvd_wait = library().hvd_wait
    while True:
        status = hvd_wait(handle, seconds, scratch.error_address, _ERROR_SIZE)
        if status != _IN_PROGRESS:
            break
    _state.pending.pop(handle, None)
    try:
        if status != _OK:
            _fail(status, scratch, negotiated=True)
        _state.scratch.append(scratch)
        return pending[0](handle)
    finally:
        library().hvd_release(handle, None, 0)


def run(handle: int) -> Any:
    """`wait` for a caller that keeps no handle: interrupted, the work is let go in peace."""
    try:
        return wait(handle)
    except BaseException:
        if handle in _state.pending:
            _state.abandoned.append(handle)
        raise


def output(handle: int, index: int = 0) -> RawOutput:
    """Output `index` of complete work; call it inside `finish` only."""
    raw = _COutput()
    raw.struct_size = ctypes.sizeof(raw)
    scratch = _state.scratch.pop() if _state.scratch else _Scratch()
    status = library().hvd_get_output(
        handle, index, ctypes.addressof(raw), scratch.error_address, _ERROR_SIZE
    )
    if status != _OK:
        _fail(status, scratch, negotiated=False)
    _state.scratch.append(scratch)
    splits = raw.received_splits[: raw.received_split_count] if raw.received_splits else None
    return RawOutput(
        raw.data or 0, raw.dtype, tuple(raw.shape[: raw.ndim]) if raw.ndim else (), splits,
        raw.last_joined_rank,
    )


def barrier(process_set: int = 0) -> None:
    """Returns once every rank has called it."""
    run(submit(Kind.BARRIER, None, finish=lambda handle: None, process_set=process_set))


def join() -> int:
    """Returns the last rank to join, once every rank has."""
    return run(submit(Kind.JOIN, None, finish=lambda handle: output(handle).last_joined_rank))


def reset() -> None:
    """Forgets all work of a runtime that has been shut down: nothing of it runs any more."""
    while _state.pending:
        handle, _ = _state.pending.popitem()
        library().hvd_release(handle, None, 0)
    _state.abandoned.clear()
    _state.counters.clear()
    _state.forked = False


def check(status: int, error: "ctypes.Array[ctypes.c_char]") -> None:
    """Raises what a failed call of init or shutdown deserves."""
    if status != _OK:
        raise HorovodInternalError(error.value.decode(errors="replace"))


def _fail(status: int, scratch: _Scratch, negotiated: bool) -> NoReturn:
    message = scratch.error.value.decode(errors="replace")
    _state.scratch.append(scratch)
    if status in (_INVALID_ARGUMENT, _ALREADY_EXISTS):
        raise HorovodDisagreementError(message) if negotiated else ValueError(message)
    if status == _UNIMPLEMENTED:
        raise HorovodUnimplementedError(message)
    raise HorovodInternalError(message)


def _sweep() -> None:
    for handle in _state.abandoned[:]:
        if handle not in _state.pending or poll(handle):
            _state.abandoned.remove(handle)
            if _state.pending.pop(handle, None):
                library().hvd_release(handle, None, 0)
