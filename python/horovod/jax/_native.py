"""Loads the operation that compiled programs contain, and passes it the open library."""

from __future__ import annotations

import ctypes
import os
import pathlib
import re
import warnings
from typing import Any, List, Optional

import jax

from horovod._library import library

TARGET, COMPARISON = "horovod", "horovod_compare"  # collectives, and the comparison of replicas
_handlers: List[ctypes.PyDLL] = []  # the handler's library, once XLA uses the handler
# In the order of jax_ops/library.h.
_FUNCTIONS = ["hvd_submit", "hvd_wait", "hvd_poll", "hvd_get_output", "hvd_release"]


def _interface(where: str) -> int:
    """Returns the minor version of this JAX's FFI, read from the header that JAX ships. Raises ImportError for an
    unsupported version."""
    try:
        header = pathlib.Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
        numbers = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header))
        major, minor = int(numbers["MAJOR"]), int(numbers["MINOR"])
    except (AttributeError, KeyError, OSError) as error:
        raise ImportError(f"{where} does not say which FFI it has: {error}.") from None
    if major != 0 or minor < 1 or "XLA_FFI_Future_SetError" not in header:
        raise ImportError(
            f"{where} has version {major}.{minor} of XLA's FFI, and Horovod's handler "
            "is for 0.1 and later ones before 1, with asynchronous calls."
        )
    return minor


def _register() -> None:
    """Registers the handler with XLA. Raises ImportError with one sentence if that fails."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_operations.so")
    ffi: Any = getattr(jax, "ffi", None)
    where = f"JAX {jax.__version__} in {os.path.dirname(jax.__file__)}"
    if not os.path.exists(path):
        raise ImportError(f"{path} is missing: build or install Horovod anew.")
    if ffi is None or not hasattr(ffi, "register_ffi_target") or not hasattr(ffi, "ffi_lowering"):
        raise ImportError(f"{where} has no jax.ffi, which 0.5 and later have.")
    minor = _interface(where)
    native = ctypes.PyDLL(path)
    native.horovod_jax_note_compilation.argtypes = [ctypes.c_char_p]
    addresses = [library().address_of(name) for name in _FUNCTIONS]
    native.horovod_jax_bind((ctypes.c_void_p * len(addresses))(*addresses), minor)
    try:
        ffi.register_ffi_target(TARGET, ffi.pycapsule(native.horovod_jax_execute), platform="cpu")
        ffi.register_ffi_target(COMPARISON, ffi.pycapsule(native.horovod_jax_compare), platform="cpu")
    except Exception as error:
        raise ImportError(f"{where} does not take Horovod's handler: {error}.") from None
    _handlers.append(native)


def note_compilation(program: str) -> None:
    """Counts the compilations of a program, for stall reports."""
    if _handlers:
        _handlers[0].horovod_jax_note_compilation(program.encode())


def count(model: int, counter: Any, compare: Any) -> None:
    """Makes compiled programs count the reductions of a model and call `compare`, as in jax_ops/library.h."""
    _handlers[0].horovod_jax_count(ctypes.c_int64(model), counter, compare)


def load() -> Optional[str]:
    """Returns None, or the reason why compiled programs call back to Python; warns about it once."""
    if os.environ.get("HOROVOD_JAX_FFI", "").strip() == "0":
        return "HOROVOD_JAX_FFI is 0"
    try:
        _register()
    except ImportError as error:
        warnings.warn(f"{error} Inside jax.jit Horovod calls back to Python, which is slower.", stacklevel=2)
        return str(error)
    return None
