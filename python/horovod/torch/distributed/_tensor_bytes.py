"""Tensors as the runtime takes them, of every dtype that torch has."""

from __future__ import annotations

import ctypes
from typing import NamedTuple, Optional, Sequence, Tuple

import torch

from horovod import _ops
from horovod.torch import _tensors


class Form(NamedTuple):
    """How elements of a dtype travel: as `parts` values of `dtype` each, in shapes with `shape` behind."""

    dtype: int
    parts: int
    shape: Tuple[int, ...]


# Dtypes that the runtime does not know. The ranks compare shapes, to which each adds its own number of ones.
_OTHERS = """complex32 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
    float4_e2m1fn_x2 quint8 qint8 qint32 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16""".split()


def _other(dtype: torch.dtype, number: int, parts: int) -> Form:
    name = str(dtype).split(".")[-1]
    ones = 1 + (_OTHERS.index(name) if name in _OTHERS else len(_OTHERS))
    return Form(number, parts, (parts, *[1] * ones))


_forms: dict = {dtype: Form(int(number), 1, ()) for dtype, number in _tensors.DTYPES.items()}
_forms.update({dtype: _other(dtype, int(number), 2) for dtype, number in _tensors.COMPLEX.items()})


def form_of(tensor: torch.Tensor) -> Form:
    """Returns the form of the tensor's dtype. Those that the runtime does not know travel as bytes."""
    form = _forms.get(tensor.dtype)
    if form is None:
        form = _forms[tensor.dtype] = _other(tensor.dtype, int(_ops.Dtype.UINT8), tensor.element_size())
    return form


def describe(tensor: torch.Tensor, shape: Sequence[int], output: Optional[torch.Tensor] = None) -> _ops.Tensor:
    """Returns the op layer's view of a dense tensor, as a tensor of another shape."""
    form = form_of(tensor)
    return _ops.Tensor(
        tensor.data_ptr(),
        0 if output is None else output.data_ptr(),
        form.dtype,
        (*shape, *form.shape),
    )


def describe_message(tensor: torch.Tensor) -> _ops.Tensor:
    """As `describe`, for a message, whose ranks compare dtype and number of elements alone."""
    if len(form_of(tensor).shape) == 0:
        return describe(tensor, tensor.shape, tensor)
    address = tensor.data_ptr()
    return _ops.Tensor(address, address, int(_ops.Dtype.INT8), (size_of(tensor),))


def is_plain(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor's memory has its values, row by row."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def size_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def fill(tensor: torch.Tensor, address: int) -> None:
    """Copies values from memory to the tensor."""
    size = size_of(tensor)
    if not size:
        return
    if is_plain(tensor):
        ctypes.memmove(tensor.data_ptr(), address, size)
        return
    dense = torch.empty(tensor.shape, dtype=tensor.dtype)
    ctypes.memmove(dense.data_ptr(), address, size)
    with torch.no_grad():
        tensor.copy_(dense)


def fill_all(tensors: Sequence[torch.Tensor], address: int) -> None:
    """Copies the values of tensors that lie one behind another."""
    for tensor in tensors:
        fill(tensor, address)
        address += size_of(tensor)
