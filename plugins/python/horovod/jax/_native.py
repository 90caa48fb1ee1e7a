"""Loads the operation that compiled programs contain, and gives it the library that is open."""

from __future__ import annotations

import ctypes
import os
import warnings
from typing import Any, Optional

import jax

from horovod._library import library

TARGET = "horovod"
# In the order of jax_ops/library.h.
_FUNCTIONS = ["hvd_submit", "hvd_wait", "hvd_poll", "hvd_get_output", "hvd_release"]


def _register() -> None:
    """Tells XLA of our handler. Raises ImportError, in one sentence, where it will not do."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_operations.so")
    ffi: Any = getattr(jax, "ffi", None)
    where = f"JAX {jax.__version__} in {os.path.dirname(jax.__file__)}"
    if not os.path.exists(path):
        raise ImportError(f"{path} is missing: build or install Horovod anew.")
    if ffi is None or not hasattr(ffi, "register_ffi_target") or not hasattr(ffi, "ffi_lowering"):
        raise ImportError(f"{where} has no jax.ffi with ffi_lowering; 0.5 and later have it.")
    native = ctypes.PyDLL(path)
    try:
        ffi.register_ffi_target(TARGET, ffi.pycapsule(native.horovod_jax_execute), platform="cpu")
    except Exception as error:
        raise ImportError(f"{where} does not take Horovod's handler: {error}") from None
    native.horovod_jax_problem.restype = ctypes.c_char_p
    problem = native.horovod_jax_problem().decode()
    if problem:
        raise ImportError(f"{where} cannot run Horovod's handler: {problem}.")
    addresses = [library().address_of(name) for name in _FUNCTIONS]
    native.horovod_jax_bind((ctypes.c_void_p * len(addresses))(*addresses))


def load() -> Optional[str]:
    """None, or why compiled programs call back to Python instead, which is also said once."""
    if os.environ.get("HOROVOD_JAX_FFI", "").strip() == "0":
        return "HOROVOD_JAX_FFI is 0"
    try:
        _register()
    except ImportError as error:
        warnings.warn(f"{error} Inside jax.jit Horovod calls back to Python, which is slower.",
                      stacklevel=2)
        return str(error)
    return None
