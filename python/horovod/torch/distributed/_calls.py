"""Submits the calls of one group to the runtime. The calls need no names, because the n-th call is the same operation
on all members."""

from __future__ import annotations

import ctypes
import enum
import zlib
from typing import Any, List, Optional, Sequence

import torch

from horovod import _native, _ops
from horovod._library import library
from horovod.torch import _submission
from horovod.torch.distributed import _backward, _tensor_bytes


class Op(enum.IntEnum):
    """hvd_op_kind and hvd_group_op."""

    ALLREDUCE = 0
    ALLGATHER = 1
    BROADCAST = 2
    ALLTOALL = 5
    BARRIER = 6
    REDUCESCATTER = 7
    REDUCE = 64
    GATHER = 65
    SCATTER = 66


def create(name: str, ranks: Sequence[int]) -> int:
    """Returns the number of a new group of these ranks of the job. All members must create their groups in the same
    order."""
    members = (ctypes.c_int32 * len(ranks))(*ranks)
    number, error = ctypes.c_int32(), ctypes.create_string_buffer(4096)
    _ops.check(
        library().hvd_group_create(
            ctypes.addressof(members),
            len(ranks),
            name.encode(),
            ctypes.addressof(number),
            ctypes.addressof(error),
            len(error),
        ),
        error,
        negotiated=False,
    )
    return number.value


def destroy(group: int) -> None:
    """Ends a group on this rank."""
    error = ctypes.create_string_buffer(4096)
    _ops.check(library().hvd_group_destroy(group, ctypes.addressof(error), len(error)), error, negotiated=False)


# The tag of a call contains one of these: the operation on its elements (up to 7, _reductions); the number of a dtype
# that the runtime does not know; the sizes of several tensors that travel as one.
SPARSE = 4
_OTHER = 1 << 3
_SIZES = 1 << 8


def tag_of_sizes(tensors: Sequence[torch.Tensor]) -> int:
    """Returns a number for the sizes of several tensors; two different lists of sizes collide once in eight million
    cases."""
    if len(tensors) == 1:
        return 0
    return _SIZES * (zlib.crc32(repr([tensor.numel() for tensor in tensors]).encode()) % (1 << 23))


def _nothing(handle: int) -> None:
    pass


def submit(
    group: int,
    op: int,
    like: Optional[torch.Tensor],
    elements: int,
    source: Optional[torch.Tensor],
    target: Optional[torch.Tensor],
    seconds: float,
    *,
    keep: Any = None,
    reduce_op: int = _ops.Sum,
    root: int = 0,
    tag: int = 0,
    factor: float = 1.0,
    counts: Optional[List[int]] = None,
) -> int:
    """Submits a collective, and returns its handle. `elements`: hvd_group_call.count. `elements` and `counts` are in
    elements of the dtype of `like`. `source` and `target` are dense tensors; None where this rank has none. `seconds`:
    the longest wait for earlier work on their memory. `tag`: of a reduction, SPARSE, or from `tag_of_sizes`."""
    dtype, parts, other = _tensor_bytes.form_of(like) if like is not None else _tensor_bytes.BYTES
    handle: int = _native.group_submit(
        group,
        op,
        reduce_op,
        dtype,
        elements * parts,
        0 if source is None else source.data_ptr(),
        0 if target is None else target.data_ptr(),
        root,
        tag + _OTHER * other,
        factor,
        counts if counts is None or parts == 1 else [count * parts for count in counts],
        (source, target, keep),
        _nothing,
        _backward.takes_step(),
        seconds,
    )
    return handle


def reduce_now(group: int, reduce_op: int, tensor: torch.Tensor, seconds: float) -> Any:
    """Starts an in-place allreduce of a dense tensor and waits for it. Returns None once it is complete, the handle
    after the time limit, or False without a call if the tensor is not dense."""
    return _native.group_reduce(group, reduce_op, _submission.PLAIN, tensor, seconds)
