"""Memory that the ranks of a host share, under the buckets of DistributedDataParallel: such buckets are reduced without
copies.

A module allocates its buckets in C++, and has views of them. torch can move a storage under all its views into shared
memory of its own, over which pages of hvd_alloc are mapped here. This is done for a storage that a backward pass has
given a second time, as long as no module has gradients that are views of its buckets: a forked child would share them.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from horovod import _identity, _memory
from horovod.torch import _ddp, _tensors
from horovod.torch.distributed import _tensor_bytes

# The runtime reduces smaller tensors in private memory as fast.
_LEAST_BYTES = 128 << 10
# Torch keeps a descriptor of each storage that it has moved.
_MOST = 64
_FOLDER = "/dev/shm"  # torch's shared memory


class _Storage:
    """A storage that a backward pass has given."""

    def __init__(self, bucket: torch.Tensor) -> None:
        self._reference = StorageWeakRef(_storage_of(bucket))
        self._is_new = True
        self._memory: Optional[torch.Tensor] = None

    def is_shared(self) -> bool:
        return self._memory is not None

    def is_gone(self) -> bool:
        return bool(self._reference.expired())

    def memory_of(self, bucket: torch.Tensor) -> torch.Tensor:
        if self._is_new:
            self._is_new = False
            self._memory = _shared(bucket)
        memory = self._memory
        if memory is None or memory.dtype is not bucket.dtype or memory.numel() != bucket.numel():
            return bucket
        return memory


_storages: Dict[int, _Storage] = {}  # by address


def of(bucket: torch.Tensor) -> torch.Tensor:
    """Returns the shared memory of a dense tensor that code in C++ reduces in a backward pass, or the tensor."""
    address = bucket.data_ptr()
    storage = _storages.get(address)
    if storage is not None and not storage.is_gone():
        memory = storage.memory_of(bucket)
        if bucket.data_ptr() != address:  # it has moved
            _storages[bucket.data_ptr()] = _storages.pop(address)
        return memory
    if _tensor_bytes.size_of(bucket) >= _LEAST_BYTES:
        for gone in [place for place, other in _storages.items() if other.is_gone()]:
            del _storages[gone]
        _storages[address] = _Storage(bucket)
    return bucket


def _storage_of(tensor: torch.Tensor) -> Any:
    # torch 1.13 has no untyped_storage.
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()


def _shared(bucket: torch.Tensor) -> Optional[torch.Tensor]:
    """Moves the bucket. Returns its memory under the address that the runtime knows; None: it stays where it is."""
    storage, size = _storage_of(bucket), _tensor_bytes.size_of(bucket)
    if bucket.dtype not in _tensors.DTYPES or _ddp.has_views() or storage.nbytes() != size:
        return None
    if sum(one.is_shared() for one in _storages.values()) >= _MOST or not _has_room(size):
        return None
    memory = _memory.shared_buffer(size)
    if memory is None:
        return None
    values = torch.frombuffer(memory, dtype=bucket.dtype)
    values.copy_(bucket.detach().view(-1))
    try:
        file, _ = storage._share_fd_cpu_()
    except RuntimeError:  # this host has no shared memory
        return None
    if not _memory.map_at(memory, bucket.data_ptr()):
        return None
    os.ftruncate(file, 0)  # its pages have no address now
    return values


def _has_room(size: int) -> bool:
    """Returns whether all ranks of this host may move a bucket at once. Where torch does not reserve the memory, as
    torch 1.13, a lack of it ends the process."""
    try:
        found = os.statvfs(_FOLDER)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize > (_identity.local_size() + 1) * size
