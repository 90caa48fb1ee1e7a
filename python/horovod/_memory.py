"""Memory that the ranks of a host share. Tensors in such memory on every rank are reduced without
copies."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Optional

from horovod._library import library

# mremap(2): where the old size is 0, the pages get a second address.
_MAYMOVE, _FIXED = 1, 2
_FAILED = ctypes.c_void_p(-1).value


def registered_buffer(size: int) -> Any:
    """Returns a ctypes array of `size` zero bytes: in shared memory if the host has enough, else in
    private memory. The last reference frees it: a tensor that uses it must keep one."""
    array = shared_buffer(size)
    return (ctypes.c_char * size)() if array is None else array


def shared_buffer(size: int) -> Optional[Any]:
    """As registered_buffer; None if the host has not enough shared memory."""
    memory = ctypes.c_void_p()
    if library().hvd_alloc(size, ctypes.addressof(memory), None, 0) != 0:
        return None
    array = (ctypes.c_char * size).from_address(memory.value or 0)
    freed = weakref.finalize(array, library().hvd_free, memory.value, None, 0)
    freed.atexit = False  # code that runs at exit may still read a tensor there
    return array


def map_at(array: Any, address: int) -> bool:
    """Maps the pages of a shared buffer at a second address in place of what is mapped there. Returns whether that
    worked; if the process may have no more mappings, nothing has changed."""
    mremap = ctypes.CDLL(None).mremap
    mremap.restype = ctypes.c_void_p
    mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    size = ctypes.sizeof(array)
    # Linux may remove what is at a fixed address before it finds a limit: the first call finds it, at a free one.
    second = mremap(ctypes.addressof(array), 0, size, _MAYMOVE, None)
    if second is None or second == _FAILED:
        return False
    return bool(mremap(second, size, size, _MAYMOVE | _FIXED, address) == address)
