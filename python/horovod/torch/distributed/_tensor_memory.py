"""Tensors in memory that the ranks of a host share, which FSDP2 requests: all-gathers and reduce-scatters read the
inputs of other ranks in place.

Allocating memory costs more than such a collective. Therefore the block of a deleted tensor is reused for a tensor of
the same size; the free blocks never have more bytes than tensors have used at one time.
"""

from __future__ import annotations

import collections
import ctypes
import threading
import weakref
from typing import Any, DefaultDict, List

import torch

from horovod import _memory


class _Blocks:
    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant, because a tensor of this thread may be freed at any point
        self._free: DefaultDict[int, List[Any]] = collections.defaultdict(list)  # free blocks by size
        self._free_bytes = self._used_bytes = self._most_bytes = 0

    def take(self, size: int) -> Any:
        """Returns a ctypes array. The block becomes free when the array is deleted."""
        with self._lock:
            free = self._free[size]
            if free:
                self._free_bytes -= size
            block = free.pop() if free else _memory.registered_buffer(size)
            self._used_bytes += size
            self._most_bytes = max(self._most_bytes, self._used_bytes)
            array = (ctypes.c_char * size).from_buffer(block)
            weakref.finalize(array, self._give_back, block, size).atexit = False
            return array

    def _give_back(self, block: Any, size: int) -> None:
        with self._lock:
            self._used_bytes -= size
            if self._free_bytes + size <= self._most_bytes:
                self._free[size].append(block)
                self._free_bytes += size

    def close(self) -> None:
        """Frees the free blocks; blocks in use are freed with their tensors."""
        with self._lock:
            self._free.clear()
            self._most_bytes = -1


class _State:
    blocks = _Blocks()


def empty(elements: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns a one-dimensional tensor with uninitialised values."""
    nothing = torch.empty(0, dtype=dtype)
    size = elements * nothing.element_size()
    return torch.frombuffer(_State.blocks.take(size), dtype=torch.uint8).view(dtype) if size else nothing


def forget() -> None:
    """Stops the reuse of all blocks allocated so far: a rank that has not yet noticed a failure may still access
    them."""
    blocks, _State.blocks = _State.blocks, _Blocks()
    blocks.close()
