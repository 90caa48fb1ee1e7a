"""Memory that the ranks of a host share. Ranks reduce tensors in such memory without copies."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from horovod._library import library


def registered_buffer(size: int) -> Any:
    """Returns a ctypes array of `size` zero bytes: in shared memory if the host has enough, else in private memory. The
    memory is freed with the last reference: a tensor that uses it must keep a reference."""
    memory = ctypes.c_void_p()
    if library().hvd_alloc(size, ctypes.addressof(memory), None, 0) != 0:
        return (ctypes.c_char * size)()
    array = (ctypes.c_char * size).from_address(memory.value or 0)
    freed = weakref.finalize(array, library().hvd_free, memory.value, None, 0)
    freed.atexit = False  # keeps the memory at exit, because code that runs then may still read a tensor in it
    return array
