"""Asynchronous reductions, which MXNet's engine starts once the arrays are computed.

To the engine, each is an asynchronous operation that changes its arrays: only later computations on
these arrays wait for it. After a failure, reading such an array raises MXNetError, and the next
`reduce` raises the original error.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import queue
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import mxnet
from mxnet.base import _LIB, check_call

from horovod import _basics, _ops
from horovod.mxnet import _arrays

_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class _Context(ctypes.Structure):
    """mxnet/base.h: Context."""

    _fields_ = [("device_type", ctypes.c_int), ("device_id", ctypes.c_int32)]


class _OnComplete(ctypes.Structure):
    """mxnet/engine.h: CallbackOnComplete, to be copied while the operation is being started."""

    _fields_ = [("function", _Function), ("engine", ctypes.c_void_p), ("argument", ctypes.c_void_p)]


class Computed:
    """The functions of `_arrays`, for arrays that the engine has computed: a wait for them here would
    never end."""

    check, dense = staticmethod(_arrays.check), staticmethod(_arrays.dense)
    empty_like, copy = staticmethod(_arrays.empty_like), staticmethod(_arrays.copy)

    @staticmethod
    def describe(array: Any, output: Optional[Any], name: Optional[str] = None) -> _ops.Tensor:
        """Returns the op layer's view of an array, which is also its output."""
        address = _arrays.pointer(array)
        return _ops.Tensor(address, address, _arrays.number_of(array), array.shape, name)


_tokens = itertools.count(1)
_starts: Dict[int, Tuple[Callable[[], int], Sequence[Any]]] = {}
_started: queue.SimpleQueue[Tuple[int, _OnComplete, Sequence[Any]]] = queue.SimpleQueue()
_failures: List[Exception] = []
# With oneDNN, MXNet keeps some arrays in blocked layouts. The name is that of NDArray::Reorder2DefaultAsync.
_reorder = getattr(_LIB, "_ZNK5mxnet7NDArray20Reorder2DefaultAsyncEv", None)
_turns: Dict[Any, Any] = {}  # dummy arrays: the engine runs operations that change one of them in order
_thread: Optional[threading.Thread] = None
_ends = False  # whether _end runs after the next shutdown


def _complete(on_complete: _OnComplete, failure: Optional[Exception]) -> None:
    error = None
    if failure is not None:
        _failures.append(failure)
        error = _error(str(failure))
    on_complete.function(on_complete.engine, on_complete.argument, error)


def _error(message: str) -> Optional[Any]:
    """Returns a dmlc::Error, which has the layout of std::runtime_error; None if the library is
    missing. The engine copies it."""
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


_errors: List[Any] = []  # few: each one ends a training


@_Function
def _begin(_: int, address: int, token: int) -> None:
    # This function runs on a thread of the engine, which must not wait.
    on_complete = _OnComplete.from_buffer_copy(
        ctypes.string_at(address, ctypes.sizeof(_OnComplete)))
    start, arrays = _starts.pop(token)
    try:
        handle = start()
    except Exception as failure:
        _complete(on_complete, failure)
        return
    _started.put((handle, on_complete, arrays))


def _wait() -> None:
    while True:
        handle, on_complete, arrays = _started.get()
        failure = None
        try:
            _ops.run(handle)
        except Exception as error:
            failure = error
        _complete(on_complete, failure)
        del arrays


def is_asynchronous() -> bool:
    """Returns whether the engine runs operations asynchronously. NaiveEngine, which is for debugging,
    does not."""
    return os.environ.get("MXNET_ENGINE_TYPE", "") != "NaiveEngine"


def share_memory(arrays: Sequence[Any]) -> bool:
    """Returns whether two of the arrays share memory, as views of one array do. The engine never begins an
    operation that changes both."""
    # mxnet/ndarray.h: the first member of NDArray points to its memory, which views share.
    places = [ctypes.c_void_p.from_address(array.handle.value).value for array in arrays]
    return len(set(places)) < len(places)


def wait_all() -> None:
    """Returns once all reductions are complete, failed or not."""
    for turn in list(_turns.values()):
        try:
            turn.wait_to_read()
        except mxnet.MXNetError:
            pass  # the next `reduce` raises the cause


_ops.also_complete(wait_all)


def reduce(arrays: Sequence[Any], start: Callable[[], int], name: Any) -> None:
    """Makes the engine call `start` once the arrays are computed and earlier work of the same name is
    complete. `start` submits work that changes the arrays, and returns its handle. Raises the error of
    an earlier reduction."""
    global _thread, _ends
    if _failures:
        failure, _failures[:] = _failures[0], []
        _turns.clear()  # the engine has marked these arrays as failed too
        raise failure
    if _thread is None:
        _thread = threading.Thread(target=_wait, name="horovod-mxnet", daemon=True)
        _thread.start()
    if not _ends:
        _basics.after_shutdown(_end)
        _ends = True
    token = next(_tokens)
    _starts[token] = (start, arrays)
    context = arrays[0].context
    place = _Context(context.device_typeid, context.device_id)
    if name not in _turns:
        _turns[name] = mxnet.nd.zeros((1,))
    if _reorder is not None:
        for array in arrays:  # in `_begin`, a reordering would wait for the operation that it is a part of
            _reorder(array.handle)
    changed = [array.handle.value for array in (*arrays, _turns[name])]
    handles = (ctypes.c_void_p * len(changed))(*changed)
    check_call(_LIB.MXEnginePushAsyncND(
        _begin, ctypes.c_void_p(token), None, ctypes.byref(place), None, 0, handles, len(changed),
        None, 0, b"horovod", ctypes.c_bool(False)))


def _end() -> None:
    # The job is over: the work in flight has failed, and the engine must get the errors while Python
    # runs.
    global _ends
    _ends = False
    try:
        mxnet.nd.waitall()
    except mxnet.MXNetError:
        pass
    _failures.clear()
    _turns.clear()
    _starts.clear()  # the engine never begins work after a failure
