"""Tensors in memory that the ranks of a host share, which FSDP2 asks for: all-gathers and reduce-scatters of them read
the inputs of the other ranks where they are.

Memory of the operating system costs more than such a collective. A block whose tensor is gone is used again for one of
the same size, as long as the free blocks have no more bytes than tensors had at once.
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
        self._lock = threading.RLock()  # the end of a tensor may come at any point of this thread
        self._free: DefaultDict[int, List[Any]] = collections.defaultdict(list)  # by size
        self._free_bytes = self._used_bytes = self._most_bytes = 0

    def take(self, size: int) -> Any:
        """Returns a ctypes array; its end gives the block back."""
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
        """Frees the blocks, and those that tensors have at their end."""
        with self._lock:
            self._free.clear()
            self._most_bytes = -1


class _State:
    blocks = _Blocks()


def empty(elements: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor of one dimension with any values."""
    nothing = torch.empty(0, dtype=dtype)
    size = elements * nothing.element_size()
    return torch.frombuffer(_State.blocks.take(size), dtype=torch.uint8).view(dtype) if size else nothing


def forget() -> None:
    """Uses no block again that a tensor has or has had: a rank that has not seen a failure may still write there."""
    blocks, _State.blocks = _State.blocks, _Blocks()
    blocks.close()
