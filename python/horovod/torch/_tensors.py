"""Converts torch tensors to addresses and back. Contains no collective."""

from __future__ import annotations

import ctypes
from typing import Optional

import torch

from horovod import _ops
from horovod._ops import Dtype
from horovod.exceptions import HorovodUnimplementedError

DTYPES = {
    torch.uint8: Dtype.UINT8,
    torch.int8: Dtype.INT8,
    torch.int16: Dtype.INT16,
    torch.int32: Dtype.INT32,
    torch.int64: Dtype.INT64,
    torch.float16: Dtype.FLOAT16,
    torch.float32: Dtype.FLOAT32,
    torch.float64: Dtype.FLOAT64,
    torch.bool: Dtype.BOOL,
    torch.bfloat16: Dtype.BFLOAT16,
}
# Newer versions of torch have these dtypes.
for _name, _dtype in [("uint16", Dtype.UINT16), ("uint32", Dtype.UINT32), ("uint64", Dtype.UINT64)]:
    if hasattr(torch, _name):
        DTYPES[getattr(torch, _name)] = _dtype


# Complex numbers travel as pairs of reals.
COMPLEX = {torch.complex64: Dtype.FLOAT32, torch.complex128: Dtype.FLOAT64}


def number_of(dtype: torch.dtype) -> Optional[Dtype]:
    """Returns the library's number of the dtype, or of its real dtype; None if the library does not know it."""
    return DTYPES.get(dtype, COMPLEX.get(dtype))


def is_complex(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor travels as pairs of reals."""
    return tensor.dtype in COMPLEX


def check(tensor: torch.Tensor, what: str) -> None:
    """Raises an error of one sentence unless `tensor` lies densely in host memory with a known dtype."""
    check_kind(tensor, what)
    if not tensor.is_cpu:
        raise HorovodUnimplementedError(
            f"{what}: the tensor is on {tensor.device}, and this build of Horovod has no operation "
            "for tensors there; move it with .cpu() first."
        )


def check_kind(tensor: torch.Tensor, what: str) -> None:
    """Raises unless the value is a strided tensor of a known dtype, on any device."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{what}: expected a torch.Tensor, not a {type(tensor).__name__}.")
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"{what}: tensors of layout {tensor.layout} cannot be sent; make it dense with "
            ".to_dense(), or use hvd.sparse_allreduce_async."
        )
    if number_of(tensor.dtype) is None:
        raise ValueError(f"{what}: tensors of type {tensor.dtype} are not supported.")


def describe(tensor: torch.Tensor, output: Optional[torch.Tensor], name: Optional[str] = None) -> _ops.Tensor:
    """Returns the op layer's view of a contiguous tensor and of the tensor for the result."""
    return _ops.Tensor(
        tensor.data_ptr(),
        0 if output is None else output.data_ptr(),
        number_of(tensor.dtype),
        _ops.pairs(tensor.shape, output is None) if is_complex(tensor) else tensor.shape,
        name,
    )


def empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a contiguous tensor for received data."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor itself if its memory holds its values in order, else a copy. Until `tensor.conj()` or its
    imaginary part is resolved, its values differ from its memory."""
    if tensor.is_conj() or tensor.is_neg():
        return tensor.detach().resolve_conj().resolve_neg().contiguous()
    return tensor if tensor.is_contiguous() else tensor.detach().contiguous()


def copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copies the values of `source` to `target`."""
    with torch.no_grad():
        target.copy_(source)


def shape_of(output: _ops.RawOutput, like: torch.Tensor) -> tuple:
    """Returns the shape of the runtime's output as a tensor of the dtype of `like`."""
    return output.shape[:-1] if is_complex(like) else output.shape


def take(output: _ops.RawOutput, like: torch.Tensor) -> torch.Tensor:
    """Returns a new tensor with a copy of the runtime's output."""
    tensor = torch.empty(shape_of(output, like), dtype=like.dtype, device="cpu")
    if output.address and tensor.numel():
        ctypes.memmove(tensor.data_ptr(), output.address, tensor.numel() * tensor.element_size())
    return tensor


def splits(numbers: list) -> torch.Tensor:
    """Returns the received splits as an int32 tensor."""
    return torch.tensor(numbers, dtype=torch.int32, device="cpu")
