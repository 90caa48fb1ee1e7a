"""Finds and opens libhorovod.so.1; declares its C functions (include/horovod/horovod.h).

Owns the one open library of the process. Handles no tensors. `library` raises only ImportError.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NoReturn

from horovod._installation import LIBRARY_FOLDER
from horovod._version import __version__

_NAME = "libhorovod.so"  # the library's name in a wheel
_SONAME = "libhorovod.so.1"

# Function name: argument types without the trailing (error, error_size). Each function returns a status and may wait
# for other ranks. Other Python threads run during the call.
_WAITING: Dict[str, List[Any]] = {
    "hvd_init": [ctypes.c_void_p],
    "hvd_shutdown": [],
    "hvd_shutdown_failed": [],
    "hvd_offer_stack": [ctypes.c_int32, ctypes.c_int32],
    "hvd_start_timeline": [ctypes.c_char_p, ctypes.c_int32],
    "hvd_stop_timeline": [],
    "hvd_metrics": [ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p],
    "hvd_complete_init": [ctypes.c_int32],
    # These functions wait while the place of this process is provisional.
    "hvd_runs_on_device": [
        ctypes.c_int32,
        ctypes.c_int32,
        ctypes.c_int32,
        ctypes.c_double,
        ctypes.c_double,
        ctypes.c_void_p,
    ],
    "hvd_send": [ctypes.c_void_p, ctypes.c_void_p],
    "hvd_recv": [ctypes.c_void_p, ctypes.c_void_p],
    "hvd_add_process_set": [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p],
    "hvd_add_named_process_set": [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p],
    "hvd_remove_process_set": [ctypes.c_int32, ctypes.c_void_p],
    "hvd_group_create": [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_void_p],
    "hvd_group_destroy": [ctypes.c_int32],
    "hvd_process_set_rank": [ctypes.c_int32, ctypes.c_void_p],
    "hvd_process_set_size": [ctypes.c_int32, ctypes.c_void_p],
    "hvd_process_set_included": [ctypes.c_int32, ctypes.c_void_p],
    "hvd_derive_key": [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t],
}
_ERROR: List[Any] = [ctypes.c_void_p, ctypes.c_size_t]

# Argument types of functions that return at once.
_PROMPT: Dict[str, List[Any]] = {
    "hvd_alloc": [ctypes.c_size_t, ctypes.c_void_p],
    "hvd_free": [ctypes.c_void_p],
    "hvd_get_output": [ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p],
}

# Functions that run in every step, called by the native module.
_HOT = [
    "hvd_submit",
    "hvd_poll",
    "hvd_wait",
    "hvd_get_output",
    "hvd_release",
    "hvd_is_provisional",
    "hvd_start",
    "hvd_group_submit",
    "hvd_wait_on_stream",
]

# These functions return a number and take no arguments.
_NUMBERS = [
    "hvd_is_initialized",
    "hvd_rank",
    "hvd_size",
    "hvd_local_rank",
    "hvd_local_size",
    "hvd_cross_rank",
    "hvd_cross_size",
    "hvd_is_homogeneous",
    "hvd_generation",
    "hvd_is_provisional",
    "hvd_has_new_ranks",
    "hvd_host_updates",
    "hvd_leave_seconds",
    "hvd_state_committed",
    "hvd_elastic_run_entered",
    "hvd_elastic_run_returned",
    "hvd_elastic_run_raised",
]


# hvd_init_options.share
Share = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.c_size_t
)


class InitOptions(ctypes.Structure):
    """hvd_init_options."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("timeout_seconds", ctypes.c_double),
        ("process_set_count", ctypes.c_uint32),
        ("process_set_sizes", ctypes.POINTER(ctypes.c_uint32)),
        ("process_set_ranks", ctypes.POINTER(ctypes.c_int32)),
        ("rank_count", ctypes.c_uint32),
        ("ranks", ctypes.POINTER(ctypes.c_int32)),
        ("joined", ctypes.CFUNCTYPE(None)),
        ("rank", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("share", Share),
        ("context", ctypes.c_void_p),
    ]


class Message(ctypes.Structure):
    """hvd_message."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("rank", ctypes.c_int32),
        ("tag", ctypes.c_int32),
        ("process_set", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("count", ctypes.c_int64),
        ("data", ctypes.c_void_p),
        ("timeout_seconds", ctypes.c_double),
    ]


class Output(ctypes.Structure):
    """hvd_output."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.c_void_p),
        ("received_splits", ctypes.c_void_p),
        ("received_split_count", ctypes.c_uint32),
        ("last_joined_rank", ctypes.c_int32),
        ("process_set", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("source_rank", ctypes.c_int32),
    ]


class Library:
    """The functions of libhorovod.so, each an attribute of the same name.

    Raises OSError for a file that is not a library, AttributeError for a library that lacks a function.
    """

    def __init__(self, path: str) -> None:
        waiting = ctypes.CDLL(path)
        prompt = ctypes.PyDLL(path, handle=waiting._handle)
        for name, argtypes in _WAITING.items():
            self._take(waiting, name, argtypes + _ERROR, ctypes.c_int)
        for name, argtypes in _PROMPT.items():
            self._take(prompt, name, argtypes + _ERROR, ctypes.c_int)
        for name in _NUMBERS:
            self._take(prompt, name, [], ctypes.c_int32)
        self._take(prompt, "hvd_version", [], ctypes.c_char_p)
        self._take(waiting, "hvd_digest", [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64], ctypes.c_uint64)
        self._take(waiting, "hvd_capability", [ctypes.c_char_p] + _ERROR, ctypes.c_int32)
        self.opened = waiting
        self._hot = [self.address_of(name) for name in _HOT]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def _take(self, opened: Any, name: str, argtypes: list, restype: Any) -> None:
        function = getattr(opened, name)
        function.argtypes = argtypes
        function.restype = restype
        setattr(self, name, function)

    def address_of(self, name: str) -> int:
        """Returns the address of a function of the library, for native code."""
        return ctypes.cast(getattr(self.opened, name), ctypes.c_void_p).value or 0

    def bind(self, native: Any, fail: Callable[[int, str, bool], NoReturn]) -> None:
        """Passes to the native module the functions that run in every step, and the functions that raise its errors."""
        native.bind(*self._hot, fail, threading.main_thread().ident)


def places() -> list[str]:
    """Returns the paths at which to look for the library, in order."""
    chosen = os.environ.get("HOROVOD_LIBRARY")
    if chosen:
        return [chosen]
    package = os.path.dirname(os.path.abspath(__file__))
    return [
        os.path.join(package, _NAME),
        # The build tree: build/python/horovod and build/lib.
        os.path.normpath(os.path.join(package, "..", "..", "lib", _SONAME)),
        # An installation: <prefix>/lib/python3/dist-packages/horovod and <prefix>/lib.
        os.path.normpath(os.path.join(package, LIBRARY_FOLDER, _SONAME)),
    ]


def _is_in_search_path() -> bool:
    """Returns whether the dynamic loader finds the library by its name."""
    try:
        ctypes.CDLL(_SONAME)
    except OSError:
        return False
    return True


@functools.lru_cache(maxsize=None)
def library() -> Library:
    """Returns the open library. Raises ImportError with one sentence if it is missing or unusable."""
    chosen = os.environ.get("HOROVOD_LIBRARY")
    path = next((place for place in places() if os.path.exists(place)), None)
    if path is None and not chosen and _is_in_search_path():
        path = _SONAME
    if path is None:
        hint = (
            "correct HOROVOD_LIBRARY"
            if chosen
            else "build or install Horovod, or set HOROVOD_LIBRARY to the library's path"
        )
        raise ImportError(f"{_NAME} is not at {' or '.join(places())}: {hint}.")
    try:
        opened = Library(path)
    except (OSError, AttributeError) as error:
        raise ImportError(f"{path} cannot be used: {error}; build it anew on this machine.") from None
    version = opened.hvd_version().decode()
    if version != __version__:
        raise ImportError(
            f"{path} is version {version}, but the Python package next to it is {__version__}: "
            "install both from one build."
        )
    return opened
