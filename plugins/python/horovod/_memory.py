"""Memory that the ranks of a host share, where what lies on every rank is reduced without copies."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from horovod._library import library


def registered_buffer(size: int) -> Any:
    """A ctypes array of `size` bytes, zeroed, in shared memory where the host has that much and in
    private memory where not. It is freed with the last reference, so let a tensor keep one."""
    memory = ctypes.c_void_p()
    if library().hvd_alloc(size, ctypes.addressof(memory), None, 0) != 0:
        return (ctypes.c_char * size)()
    array = (ctypes.c_char * size).from_address(memory.value or 0)
    freed = weakref.finalize(array, library().hvd_free, memory.value, None, 0)
    freed.atexit = False  # whoever still has a tensor there at exit may still read it
    return array
