"""Tensors in the form that the runtime accepts, for every dtype of torch."""

from __future__ import annotations

import ctypes
from typing import NamedTuple, Optional, Sequence

import torch

from horovod import _ops
from horovod.torch import _tensors


class Form(NamedTuple):
    """How elements of a dtype travel: each as `parts` values of `dtype`. `other` is 0 for dtypes of the runtime, and
    distinguishes dtypes that travel as the same values."""

    dtype: int
    parts: int
    other: int


# Names of dtypes that the runtime does not know. Form.other is the position in this list, from 1; all ranks must have
# the same order.
_OTHERS = """complex32 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
    float4_e2m1fn_x2 quint8 qint8 qint32 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16""".split()


def _other(dtype: torch.dtype, number: int, parts: int) -> Form:
    name = str(dtype).split(".")[-1]
    return Form(number, parts, 1 + (_OTHERS.index(name) if name in _OTHERS else len(_OTHERS)))


BYTES = Form(int(_ops.Dtype.UINT8), 1, 0)
_forms: dict = {dtype: Form(int(number), 1, 0) for dtype, number in _tensors.DTYPES.items()}
_forms.update({dtype: _other(dtype, int(number), 2) for dtype, number in _tensors.COMPLEX.items()})
_forms[torch.complex32] = _other(torch.complex32, int(_ops.Dtype.FLOAT16), 2)


def form_of(tensor: torch.Tensor) -> Form:
    """Returns the form of the tensor's dtype. Dtypes that the runtime does not know travel as bytes."""
    form = _forms.get(tensor.dtype)
    if form is None:
        form = _forms[tensor.dtype] = _other(tensor.dtype, int(_ops.Dtype.UINT8), tensor.element_size())
    return form


def travels_as_bytes(tensor: torch.Tensor) -> bool:
    """Returns whether the runtime does not know the tensor's dtype."""
    form = form_of(tensor)
    return form.other != 0 and form.dtype == BYTES.dtype


def describe(tensor: torch.Tensor, shape: Sequence[int], output: Optional[torch.Tensor] = None) -> _ops.Tensor:
    """Returns the op layer's view of a dense tensor, as a tensor of another shape. The ranks compare shapes. Each dtype
    that the runtime does not know adds a different number of ones to the shape."""
    form = form_of(tensor)
    return _ops.Tensor(
        tensor.data_ptr(),
        0 if output is None else output.data_ptr(),
        form.dtype,
        (*shape, form.parts, *[1] * form.other) if form.other else tuple(shape),
    )


def describe_message(tensor: torch.Tensor) -> _ops.Tensor:
    """Describes a tensor for a message, whose ranks compare only dtype and number of elements."""
    if form_of(tensor).other == 0:
        return describe(tensor, tensor.shape, tensor)
    address = tensor.data_ptr()
    return _ops.Tensor(address, address, int(_ops.Dtype.INT8), (size_of(tensor),))


def is_plain(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor's memory contains its values in row-major order."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor itself if its memory contains its values in row-major order, else memory for them."""
    return tensor if is_plain(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two dense tensors share memory."""
    first, second = one.data_ptr(), other.data_ptr()
    return first < second + size_of(other) and second < first + size_of(one)


def size_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def fill(tensor: torch.Tensor, address: int) -> None:
    """Copies values from the address to a dense tensor."""
    if tensor.numel():
        ctypes.memmove(tensor.data_ptr(), address, size_of(tensor))


def have_one_dtype(tensors: Sequence[torch.Tensor]) -> bool:
    return len({tensor.dtype for tensor in tensors}) == 1


def takes_values(target: torch.Tensor, source: torch.Tensor) -> bool:
    return is_plain(target) and not overlap(target, source)


def flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the concatenated values of tensors of one dtype."""
    return torch.cat([tensor.detach().resolve_conj().resolve_neg().reshape(-1) for tensor in tensors])


def spread(values: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copies concatenated values to the tensors."""
    with torch.no_grad():
        for tensor, part in zip(tensors, values.reshape(-1).split([tensor.numel() for tensor in tensors])):
            tensor.copy_(part.reshape(tensor.shape))
