"""Asynchronous collectives, which MXNet's engine starts once the arrays are computed.

To the engine, each collective is an asynchronous operation that reads and changes arrays: only later computations on
these arrays wait for it. After a failure, reading an array that the collective changes raises MXNetError. The next
`reduce` raises the original error of a `reduce`; after the loss of a rank, every later call raises that error.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import queue
import sys
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet
from mxnet.base import _LIB, check_call

from horovod import _basics, _ops
from horovod.mxnet import _arrays

_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class _Context(ctypes.Structure):
    """mxnet/base.h: Context."""

    _fields_ = [("device_type", ctypes.c_int), ("device_id", ctypes.c_int32)]


class _OnComplete(ctypes.Structure):
    """CallbackOnComplete of mxnet/engine.h, which must be copied while the operation starts."""

    _fields_ = [("function", _Function), ("engine", ctypes.c_void_p), ("argument", ctypes.c_void_p)]


class Computed:
    """The functions of `_arrays`, for arrays that the engine has computed: on the engine's thread, a wait for such
    arrays would never end."""

    check, dense = staticmethod(_arrays.check), staticmethod(_arrays.dense)
    copy = staticmethod(_arrays.copy)

    def __init__(self, results: Sequence[Any] = ()) -> None:
        """`results`: arrays for the results, in order, of a collective that is not in place."""
        self._results = iter(results)

    def empty_like(self, array: Any) -> Any:
        """Returns the next array for a result."""
        return next(self._results)

    @staticmethod
    def describe(array: Any, output: Any, name: Optional[str] = None) -> _ops.Tensor:
        """Returns the op layer's view of an array and of the array for the result."""
        return _ops.Tensor(_arrays.pointer(array), _arrays.pointer(output), _arrays.number_of(array), array.shape, name)


class _Pending(NamedTuple):
    """A collective that is not complete."""

    start: Callable[[], int]
    name: str
    arrays: Sequence[Any]  # the arrays that the collective reads or changes
    is_reduce: bool


_tokens = itertools.count(1)
_pending: Dict[int, _Pending] = {}  # key: token
_latest: Dict[str, int] = {}  # tokens, by the names of pending collectives
_waits: Dict[int, threading.Event] = {}
_started: queue.SimpleQueue[Tuple[int, _OnComplete, int]] = queue.SimpleQueue()
_failures: List[Exception] = []  # errors that later calls raise
# Errors after which Horovod stays usable: MXNet reports them where a result is read.
_PASSING = (ValueError, NotImplementedError)
# With oneDNN, MXNet keeps some arrays in blocked layouts. This is the symbol of NDArray::Reorder2DefaultAsync.
_reorder = getattr(_LIB, "_ZNK5mxnet7NDArray20Reorder2DefaultAsyncEv", None)
_turns: Dict[str, Any] = {}  # dummy arrays: the engine runs operations that change one of them in order
_thread: Optional[threading.Thread] = None
_ends = False  # whether _end runs after the next shutdown


def _complete(on_complete: _OnComplete, token: int, failure: Optional[Exception]) -> None:
    error = None
    if failure is not None:
        error = _error(str(failure))
        if error is None or _pending[token].is_reduce or not isinstance(failure, _PASSING):
            _failures.append(failure)
    on_complete.function(on_complete.engine, on_complete.argument, error)
    _forget(token)


def _forget(token: int) -> None:
    pending = _pending.pop(token, None)
    if pending is not None and _latest.get(pending.name) == token:
        del _latest[pending.name]


def _error(message: str) -> Optional[Any]:
    """Returns a dmlc::Error, which has the layout of std::runtime_error; None if the library is missing. The engine
    copies the error."""
    try:
        construct = ctypes.CDLL("libstdc++.so.6")["_ZNSt13runtime_errorC1EPKc"]
    except (AttributeError, OSError):
        return None
    error = ctypes.create_string_buffer(64)
    construct(error, ctypes.c_char_p(f"Horovod: {message}".encode(errors="replace")))
    return ctypes.addressof(_kept(error))


def _kept(buffer: Any) -> Any:
    _errors.append(buffer)
    return buffer


_errors: List[Any] = []  # never freed; errors are rare


def _copied(address: int) -> _OnComplete:
    return _OnComplete.from_buffer_copy(ctypes.string_at(address, ctypes.sizeof(_OnComplete)))


@_Function
def _begin(_: int, address: int, token: int) -> None:
    # This function runs on a thread of the engine, which must not wait.
    on_complete = _copied(address)
    try:
        handle = _pending[token].start()
    except Exception as failure:
        _complete(on_complete, token, failure)
        return
    _started.put((handle, on_complete, token))


@_Function
def _arrive(_: int, address: int, token: int) -> None:
    on_complete = _copied(address)
    on_complete.function(on_complete.engine, on_complete.argument, None)
    _waits.pop(token).set()  # last: Python may exit after this line


def _wait() -> None:
    while True:
        handle, on_complete, token = _started.get()
        failure = None
        try:
            _ops.run(handle)
        except Exception as error:
            failure = error
        _complete(on_complete, token, failure)


def is_asynchronous() -> bool:
    """Returns whether the engine runs operations asynchronously. NaiveEngine, for debugging, runs them
    synchronously."""
    return os.environ.get("MXNET_ENGINE_TYPE", "") != "NaiveEngine"


def share_memory(arrays: Sequence[Any]) -> bool:
    """Returns whether two of the arrays share memory, for example two views of one array. The engine never begins an
    operation that changes two such arrays."""
    # mxnet/ndarray.h: the first member of NDArray points to its memory, which views share.
    places = [ctypes.c_void_p.from_address(array.handle.value).value for array in arrays]
    return len(set(places)) < len(places)


def can_order(arrays: Sequence[Any]) -> bool:
    """Returns whether the engine can run a collective on these arrays."""
    return is_asynchronous() and not share_memory(arrays) and not any(map(_arrays.is_on_gpu, arrays))


def wait_all(limit: Optional[float] = None) -> None:
    """Returns once all collectives are complete, failed or not. `limit`: maximum seconds without a completion."""
    _wait_for(list(_pending), limit)


def wait_for(name: str) -> None:
    """Returns once the collectives of this name are complete, failed or not."""
    _wait_for([_latest.get(name, 0)])


def _wait_for(tokens: Sequence[int], limit: Optional[float] = None) -> None:
    for token in tokens:
        pending = _pending.get(token)
        if pending is None:
            continue
        event = _waits.get(token)
        if event is None:
            event = _waits[token] = threading.Event()
            # Unlike wait_to_read, this leaves an error in the arrays, for the operations that read them later.
            _push(_arrive, token, pending.arrays, [], True)
        left = len(_pending)
        while not event.wait(limit):
            if len(_pending) == left:
                return
            left = len(_pending)
        _forget(token)


_ops.also_complete(wait_all)
# Before a fork, MXNet waits for its engine while this thread holds the GIL, which `_wait` needs.
os.register_at_fork(before=wait_all)
if sys.version_info < (3, 10):  # later versions start programs by vfork, before which MXNet does not wait
    sys.addaudithook(lambda event, _: wait_all() if event == "subprocess.Popen" else None)


def collect(inputs: Sequence[Any], outputs: Sequence[Any], start: Callable[[], int], name: str) -> None:
    """Makes the engine call `start` once the arrays are computed. `start` submits work that reads `inputs` and writes
    `outputs`, which may be the same, and returns its handle. Waits only for earlier work of the same name. Raises the
    error of a failed job."""
    for failure in _failures:
        if not isinstance(failure, _PASSING):
            raise failure
    wait_for(name)
    _collect(inputs, outputs, start, name)


def reduce(arrays: Sequence[Any], start: Callable[[], int], name: str) -> None:
    """Makes the engine call `start` once the arrays are computed and earlier work of the same name is
    complete. `start` submits work that changes the arrays, and returns its handle. Raises the error of
    an earlier reduction."""
    if _failures:
        failure, _failures[:] = _failures[0], []
        _turns.clear()  # the engine has marked the dummy arrays as failed too
        raise failure
    earlier = _pending.get(_latest.get(name, 0))
    if earlier is not None and not earlier.is_reduce:  # only reductions use a dummy array
        wait_for(name)
    if name not in _turns:
        _turns[name] = mxnet.nd.zeros((1,))
    _collect(arrays, arrays, start, name, _turns[name])


def _collect(
    inputs: Sequence[Any], outputs: Sequence[Any], start: Callable[[], int], name: str, turn: Optional[Any] = None
) -> None:
    global _thread, _ends
    if _thread is None:
        _thread = threading.Thread(target=_wait, name="horovod-mxnet", daemon=True)
        _thread.start()
    if not _ends:
        _basics.after_shutdown(_end)
        _ends = True
    if _reorder is not None:
        for array in inputs:  # a reordering in `_begin` would wait for the operation that runs it
            _reorder(array.handle)
    token = next(_tokens)
    read = [] if outputs is inputs else inputs
    _pending[token] = _Pending(start, name, [*read, *outputs], turn is not None)
    _latest[name] = token
    _push(_begin, token, read, [*outputs] if turn is None else [*outputs, turn], False)


def _push(function: Any, token: int, read: Sequence[Any], changed: Sequence[Any], always: bool) -> None:
    """Makes the engine call `function` after the earlier operations on the arrays. `always`: even if one of them has
    failed."""
    context = (*read, *changed)[0].context
    place = _Context(context.device_typeid, context.device_id)
    handles = [(ctypes.c_void_p * len(arrays))(*(array.handle.value for array in arrays)) for arrays in (read, changed)]
    check_call(
        _LIB.MXEnginePushAsyncND(
            function,
            ctypes.c_void_p(token),
            None,
            ctypes.byref(place),
            handles[0],
            len(read),
            handles[1],
            len(changed),
            None,
            0,
            b"horovod",
            ctypes.c_bool(always),
        )
    )


def _end() -> None:
    # The job is over: the pending work has failed, and the engine must receive the errors while Python still runs.
    global _ends
    _ends = False
    wait_all()
    if hasattr(sys, "last_type"):  # an exception ends the program: MXNet would print these errors after it
        try:
            mxnet.nd.waitall()
        except mxnet.MXNetError:
            pass
    _failures.clear()
    _turns.clear()
