"""From numpy arrays to addresses and back. Contains no collective."""

from __future__ import annotations

import ctypes
from typing import Any, Optional

import numpy

from horovod import _ops
from horovod._ops import Dtype

DTYPES = {numpy.dtype(name): getattr(Dtype, name.upper()) for name in [
    "uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool",
    "uint32", "uint64",
]}


def number_of(dtype: numpy.dtype) -> Optional[int]:
    """The library's number of a dtype; None if the library does not know the dtype."""
    # numpy has none of its own; that of ml_dtypes is JAX's.
    return Dtype.BFLOAT16 if dtype.name == "bfloat16" else DTYPES.get(dtype)


def check(array: Any, what: str) -> None:
    """Raises, in one sentence, unless `array` is one of a known dtype."""
    if not isinstance(array, numpy.ndarray):
        raise ValueError(f"{what}: expected a numpy.ndarray, not a {type(array).__name__}.")
    if number_of(array.dtype) is None:
        raise ValueError(f"{what}: arrays of type {array.dtype} are not supported.")


def dense(array: numpy.ndarray) -> numpy.ndarray:
    """The array itself when it lies row by row, else a copy that does."""
    return array if array.flags.c_contiguous and array.flags.aligned else array.copy(order="C")


def empty_like(array: numpy.ndarray) -> numpy.ndarray:
    """An array to receive into."""
    return numpy.empty(array.shape, array.dtype)


def describe(array: numpy.ndarray, output: Optional[numpy.ndarray],
             name: Optional[str] = None) -> _ops.Tensor:
    """The op layer's view of a dense array and of the one that takes the result."""
    return _ops.Tensor(
        array.__array_interface__["data"][0],
        0 if output is None else output.__array_interface__["data"][0],
        number_of(array.dtype),
        array.shape,
        name,
    )


def copy(target: numpy.ndarray, source: numpy.ndarray) -> None:
    """Gives `target` the values of `source`."""
    target[...] = source


def take(output: _ops.RawOutput, like: numpy.ndarray) -> numpy.ndarray:
    """An array of its own with what the runtime lends."""
    array = numpy.empty(output.shape, like.dtype)
    if output.address and array.size:
        ctypes.memmove(array.__array_interface__["data"][0], output.address, array.nbytes)
    return array


def splits(numbers: list) -> numpy.ndarray:
    """Received splits."""
    return numpy.array(numbers, dtype=numpy.int32)
