"""Tensors as the runtime takes them, of every dtype that torch has."""

from __future__ import annotations

import ctypes
from typing import NamedTuple, Optional, Sequence

import torch

from horovod import _ops
from horovod.torch import _tensors


class Form(NamedTuple):
    """How elements of a dtype travel: as `parts` values of `dtype` each."""

    dtype: int
    parts: int


_forms: dict = {dtype: Form(int(number), 1) for dtype, number in _tensors.DTYPES.items()}
_forms.update({dtype: Form(int(number), 2) for dtype, number in _tensors.COMPLEX.items()})


def form_of(tensor: torch.Tensor) -> Form:
    """Returns the form of the tensor's dtype. Those that the runtime does not know travel as bytes."""
    form = _forms.get(tensor.dtype)
    if form is None:
        form = _forms[tensor.dtype] = Form(int(_ops.Dtype.UINT8), tensor.element_size())
    return form


def describe(tensor: torch.Tensor, shape: Sequence[int], output: Optional[torch.Tensor] = None) -> _ops.Tensor:
    """Returns the op layer's view of a dense tensor, as a tensor of another shape."""
    form = form_of(tensor)
    return _ops.Tensor(
        tensor.data_ptr(),
        0 if output is None else output.data_ptr(),
        form.dtype,
        tuple(shape) if form.parts == 1 else (*shape, form.parts),
    )


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
