"""The op layer: from addresses, shapes and dtypes to completed work. Independent of frameworks.

A framework module converts its tensors, calls `submit` and hands out the handle; this module implements everything that
all frameworks share: names, waiting, errors and object lifetimes. Any thread may call; a wait on the main thread lets
signals such as Ctrl-C through.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import itertools
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, NoReturn, Optional, Sequence

from horovod import _identity, _native
from horovod._library import Message, Output, library
from horovod.exceptions import (
    HorovodArgumentError,
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


def pairs(shape: Sequence[int], is_in_rows: bool) -> tuple:
    """Returns the shape of complex numbers as pairs of reals, which is the runtime's representation. `is_in_rows`: the
    operation needs a first dimension, and refuses a number without one."""
    return (*shape, 2) if shape or not is_in_rows else ()


def check_complex(name: Optional[str], kind: int, reduce_op: Any) -> None:
    """Raises ValueError unless the operation is right for pairs of reals."""
    if kind in (Kind.ALLREDUCE, Kind.REDUCESCATTER) and reduce_op in (Adasum, Min, Max, Product):
        called = {Adasum: "Adasum", Min: "Min", Max: "Max", Product: "Product"}[reduce_op]
        raise ValueError(
            f"{name}: complex numbers are reduced by hvd.Sum and hvd.Average only, and not by "
            f"hvd.{called}; reduce real numbers, such as the absolute values."
        )


_OK = 0
_INVALID_ARGUMENT = 1
_NOT_FOUND = 3
_ALREADY_EXISTS = 8
_UNIMPLEMENTED = 9
LEFT = 12


class Tensor(NamedTuple):
    """One dense, row-major tensor of a submission, with the fields of the C ABI."""

    input: int  # address; 0 when empty
    output: int  # address; 0 if the runtime owns the output
    dtype: Optional[int]  # None for a type without a number, which submit refuses
    shape: Sequence[int]
    name: Optional[str] = None  # name of a group's member


HOST = -1  # HVD_CPU
# Flags of a Place. STAGED: the tensors are copies in pinned host memory. TRIAL: see hvd_runs_on_device. STREAM_ORDERED:
# a wait may return before the work completes, and the native module records an event.
STAGED, TRIAL, STREAM_ORDERED = 4, 8, 16


class Place(NamedTuple):
    """Where a submission's tensors are, and when the runtime may use them."""

    device: int
    stream: int  # the framework's current stream
    event: int  # completes when inputs may be read and outputs written
    keep: Any = None  # the owner of `event`
    # None, or a function that begins the work of this handle once its inputs are complete.
    start: Optional[Callable[[int], None]] = None
    # With `start`, a function that a waiting thread calls at intervals: raises if the work will never begin.
    check: Optional[Callable[[], None]] = None
    flags: int = 0  # STAGED, TRIAL and STREAM_ORDERED


class RawOutput(NamedTuple):
    """An output in the runtime's memory, valid only inside `finish`."""

    address: int  # 0 when empty
    dtype: int
    shape: tuple
    received_splits: Optional[list]
    last_joined_rank: int
    process_set: int  # id of an added or removed process set, else -1
    device: int = -1  # device of the memory; -1: host memory


class _State:
    """Counters of unnamed calls, by process set and operation, and functions that frameworks have registered."""

    def __init__(self) -> None:
        self.counters: dict[int, dict[str, Any]] = {}
        # Functions to call with a process set, or -1 for all sets: `restarters` reset counters in native code, and
        # `forgetters` drop cached facts about the set.
        self.restarters: list[Callable[[int], Any]] = []
        self.forgetters: list[Callable[[int], Any]] = []
        # Functions that wait for work that a framework submits later.
        self.delayed: list[Callable[[Optional[float]], None]] = []


_state = _State()


def auto_name(op: str, process_set: int = 0) -> str:
    """Returns `<op>.noname.<n>`: equal on all ranks of the process set if they make their unnamed calls in the same
    order."""
    counters = _state.counters.setdefault(process_set, {})
    counter = counters.get(op)
    if counter is None:
        counter = counters.setdefault(op, itertools.count(1))
    return f"{op}.noname.{next(counter)}"


def full_name(op: str, name: Optional[str], process_set: int = 0) -> str:
    """Returns the name by which the ranks match the operation; the kind of operation is a part of it."""
    return auto_name(op, process_set) if name is None else f"{op}.{name}"


def _restart_numbers(process_set: int) -> None:
    if process_set == -1:
        _state.counters.clear()
    _state.counters.pop(process_set, None)
    for restart in _state.restarters:
        restart(process_set)


def forget(process_set: int) -> None:
    """Forgets the process set, or all sets if it is -1: a new set may reuse the id of an old set. Restarts the counters
    of unnamed calls at 1."""
    _restart_numbers(process_set)
    for function in _state.forgetters:
        function(process_set)


def also_restart(restart: Callable[[int], Any]) -> None:
    """Registers `restart`, which is called with the process set, or -1 for all, when the counters of unnamed calls
    restart at 1. For a framework that counts in native code."""
    _state.restarters.append(restart)


def also_forget(function: Callable[[int], Any]) -> None:
    """Registers `function`, which `forget` calls with the process set, or -1 for all."""
    _state.forgetters.append(function)


def also_complete(wait_all: Callable[[Optional[float]], None]) -> None:
    """Registers `wait_all`, which `complete_delayed` calls. For a framework that submits work only when the tensors are
    computed. `wait_all` must return when that work is complete or the limit has passed, and must not raise."""
    _state.delayed.append(wait_all)


def complete_delayed(limit: Optional[float] = None) -> None:
    """Returns once the work that frameworks submit later is complete. Call it before the end of a process set, of the
    job, or of this rank's allreduces (`join`). `limit`: maximum number of seconds without such a completion."""
    for wait_all in _state.delayed:
        wait_all(limit)


def check_results() -> None:
    """Returns once all work is complete whose results the program received early (HOROVOD_ENABLE_ASYNC_COMPLETION).
    Raises HorovodInternalError if some of it has failed."""
    _native.complete_early(-1.0)


def _complete_results(limit: Optional[float]) -> None:
    with contextlib.suppress(HorovodInternalError):  # each further call of `wait` raises the error
        _native.complete_early(-1.0 if limit is None else limit)


also_complete(_complete_results)


@contextlib.contextmanager
def surviving() -> Iterator[None]:
    """Within the block, an error of early-returned work does not end the process: the program returns to a commit."""
    _native.survive(True)
    try:
        yield
    finally:
        _native.survive(False)


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
    place: Optional[Place] = None,
) -> int:
    """Hands work to the runtime and returns its handle at once.

    `keep` stays referenced until the work is complete, and so does `place`. After success, `finish(handle)` runs in the
    waiting thread; its return value is the result of `wait`.

    Raises ValueError for an invalid value or a name that is in flight, and HorovodInternalError when Horovod is not
    running.
    """
    if not prescale or not postscale:
        raise ValueError(f"{name}: a prescale or postscale factor of 0 leaves nothing to reduce.")
    try:
        if place is None:
            return _native.submit(
                kind, name, tensors, keep, finish, reduce_op, root_rank, process_set, prescale, postscale, splits
            )
        handle = _native.submit(
            kind,
            name,
            tensors,
            (keep, place),
            finish,
            reduce_op,
            root_rank,
            process_set,
            prescale,
            postscale,
            splits,
            *place[:3],
            place.check,
            place.flags,
        )
    except TypeError:
        if not hasattr(splits, "__iter__"):
            raise ValueError(
                f"{name}: splits is {splits!r}, a {type(splits).__name__}; give whole numbers, one for each rank."
            ) from None
        _check_numbers(name, reduce_op, root_rank, prescale, postscale, splits)
        raise
    if place.start is not None:
        try:
            place.start(handle)
        except BaseException:
            _native.abandon(handle)
            raise
    return handle


def _check_numbers(
    name: Optional[str], reduce_op: Any, root_rank: Any, prescale: Any, postscale: Any, splits: Any
) -> None:
    """Raises ValueError with one sentence unless the values are numbers."""
    for what, value, of, hint in [
        ("op", reduce_op, int, "give hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product or hvd.Adasum"),
        ("root_rank", root_rank, int, "give the number of a rank"),
        ("prescale_factor", prescale, float, "give a number"),
        ("postscale_factor", postscale, float, "give a number"),
        *[("splits", each, int, "give whole numbers, one for each rank") for each in splits],
    ]:
        if not hasattr(value, "__index__") and not (of is float and hasattr(value, "__float__")):
            raise ValueError(f"{name}: {what} is {value!r}, a {type(value).__name__}; {hint}.")


def poll(handle: int) -> bool:
    """Returns whether the work is complete, failed or not. Raises ValueError for an unknown handle."""
    return _native.poll(handle)


def wait(handle: int) -> Any:
    """Waits until the work is complete, releases the handle and returns the result of `finish`.

    If a signal handler raises meanwhile, the handle stays valid.
    """
    return _native.wait(handle)


def run(handle: int) -> Any:
    """Like `wait`, for a caller that does not keep the handle. If a signal handler raises, the work is abandoned: it
    completes without a result."""
    try:
        return _native.wait(handle)
    except BaseException:
        _native.abandon(handle)
        raise


def run_all(handles: Iterable[int]) -> List[Any]:
    """Calls `run` for each handle. Raises the first error only when the work of all handles is complete, so that
    none stays in flight."""
    results: List[Any] = []
    failure: Optional[Exception] = None
    for handle in handles:
        try:
            results.append(run(handle))
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return results


def output(handle: int, index: int = 0) -> RawOutput:
    """Returns output `index` of complete work. Call it inside `finish` only."""
    return RawOutput(*_native.output(handle, index))


def adopt(function: Callable[..., int], *arguments: Any, finish: Callable[[int], Any], keep: Any = None) -> int:
    """Calls a function of the library that starts work. Returns the work's handle, for `wait` or `run`. `keep` stays
    referenced until the work is complete."""
    handle, error = ctypes.c_uint64(), ctypes.create_string_buffer(4096)
    status = function(*arguments, ctypes.addressof(handle), ctypes.addressof(error), len(error))
    if status != _OK:
        _fail(status, error.value.decode(errors="replace"), negotiated=False)
    _native.pending[handle.value] = (finish, keep)
    return handle.value


def send(data: Tensor, rank: int, tag: int, process_set: int, timeout: float, keep: Any) -> int:
    """Starts to send `data.input` to a rank of the job; returns the handle. `timeout`: seconds, or 0 for no limit."""
    message = _message(data, data.input, rank, tag, process_set, timeout)
    return adopt(library().hvd_send, ctypes.addressof(message), finish=lambda handle: None, keep=keep)


ANY_RANK = -1


def recv(
    data: Tensor, rank: int, tag: int, process_set: int, timeout: float, keep: Any, finish: Callable[[], Any]
) -> int:
    """Starts to receive into `data.output` from a rank of the job, or from ANY_RANK; returns the handle. The
    result of `wait` is the sender's rank, once `finish` was called."""

    def end(handle: int) -> int:
        finish()
        return rank if rank != ANY_RANK else _source_rank(handle)

    message = _message(data, data.output, rank, tag, process_set, timeout)
    return adopt(library().hvd_recv, ctypes.addressof(message), finish=end, keep=keep)


def _message(data: Tensor, address: int, rank: int, tag: int, process_set: int, timeout: float) -> Message:
    count = 1
    for extent in data.shape:
        count *= extent
    return Message(ctypes.sizeof(Message), rank, tag, process_set, data.dtype, count, address, timeout)


def _source_rank(handle: int) -> int:
    """Returns the rank that sent the message of a complete receive."""
    found, error = Output(struct_size=ctypes.sizeof(Output)), ctypes.create_string_buffer(4096)
    check(library().hvd_get_output(handle, 0, ctypes.addressof(found), ctypes.addressof(error), len(error)), error)
    return found.source_rank


def ask(function: str, process_set: int) -> int:
    """Returns the number that a library function stores for a process set."""
    number, error = ctypes.c_int32(), ctypes.create_string_buffer(4096)
    status = getattr(library(), function)(process_set, ctypes.addressof(number), ctypes.addressof(error), len(error))
    if status != _OK:
        _fail(status, error.value.decode(errors="replace"), negotiated=False)
    return number.value


def runs_on_device(kind: int, dtype: int, reduce_op: int = Sum, prescale: float = 1.0, postscale: float = 1.0) -> int:
    """Returns whether the job has a backend that runs such work in device memory, equal on all ranks: 0, 1, or
    2 if a trial in each process set decides."""
    runs, error = ctypes.c_int32(), ctypes.create_string_buffer(4096)
    status = library().hvd_runs_on_device(
        kind, dtype, reduce_op, prescale, postscale, ctypes.addressof(runs), ctypes.addressof(error), len(error)
    )
    if status != _OK:
        _fail(status, error.value.decode(errors="replace"), negotiated=False)
    return runs.value


def steps_travel(op: int, process_set: Any) -> bool:
    """Returns whether the ranks of an optimizer reduce the changes of their local steps."""
    # In an elastic job of one rank, further ranks may join later.
    return op == Adasum and process_set.included() and (process_set.size() > 1 or _identity.is_elastic())


def barrier(process_set: int = 0) -> None:
    """Returns once every rank has called it."""
    run(submit(Kind.BARRIER, None, finish=lambda handle: None, process_set=process_set))


def join() -> int:
    """Waits until every rank has joined; returns the last rank that joined."""

    def finish(handle: int) -> int:
        # Ranks that joined later have made more unnamed calls, so restart the counters of the global process set at 1.
        _restart_numbers(0)
        return output(handle).last_joined_rank

    complete_delayed()
    return run(submit(Kind.JOIN, None, finish=finish))


def complete_init(takes_any_place: bool) -> None:
    """Waits until the ranks in training have admitted this process. `takes_any_place`: its rank and the size may
    change."""
    error = ctypes.create_string_buffer(4096)
    check(library().hvd_complete_init(takes_any_place, ctypes.addressof(error), len(error)), error)


def reset() -> None:
    """Releases the handles of all work after the shutdown of the runtime."""
    _native.release_all()
    forget(-1)


def check(status: int, error: ctypes.Array[ctypes.c_char], *, negotiated: bool = True) -> None:
    """Raises the exception for a failed call of the library. `negotiated`: other ranks may have contributed to a
    refused value."""
    if status != _OK:
        _fail(status, error.value.decode(errors="replace"), negotiated)


def _fail(status: int, message: str, negotiated: bool) -> NoReturn:
    if status in (_INVALID_ARGUMENT, _ALREADY_EXISTS):
        raise HorovodDisagreementError(message) if negotiated else HorovodArgumentError(message)
    if status == _NOT_FOUND and not negotiated:
        raise HorovodArgumentError(message)
    if status == _UNIMPLEMENTED:
        raise HorovodUnimplementedError(message)
    raise HorovodInternalError(message)


library().bind(_native, _fail)
