"""Converts numpy arrays to addresses and back. Contains no collective."""

from __future__ import annotations

import ctypes
from typing import Any, Optional

import numpy

from horovod import _ops
from horovod._ops import Dtype

DTYPES = {
    numpy.dtype(name): getattr(Dtype, name.upper())
    for name in [
        "uint8",
        "int8",
        "uint16",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
        "bool",
        "uint32",
        "uint64",
    ]
}


# Complex numbers travel as pairs of reals.
COMPLEX = {numpy.dtype("complex64"): Dtype.FLOAT32, numpy.dtype("complex128"): Dtype.FLOAT64}


def number_of(dtype: numpy.dtype) -> Optional[int]:
    """Returns the library's number of a dtype, or of its real dtype; None if the library does not know it."""
    # numpy has no bfloat16, so JAX uses the bfloat16 of ml_dtypes.
    return Dtype.BFLOAT16 if dtype.name == "bfloat16" else DTYPES.get(dtype, COMPLEX.get(dtype))


def is_complex(array: Any) -> bool:
    """Returns whether the array travels as pairs of reals."""
    return array.dtype in COMPLEX


def to_array(value: Any) -> Any:
    """Returns the value as a numpy array; leaves a masked array unchanged, which `check` refuses."""
    return value if isinstance(value, numpy.ma.MaskedArray) else numpy.asarray(value)


def check_mask(value: Any, what: str) -> None:
    """Raises ValueError for a masked array: the runtime would send its values without its mask."""
    if isinstance(value, numpy.ma.MaskedArray):
        raise ValueError(f"{what}: a masked array would lose its mask; fill it, as by x.filled(0).")


def check(array: Any, what: str) -> None:
    """Raises an error of one sentence unless `array` is an array of a known dtype."""
    check_mask(array, what)
    if not isinstance(array, numpy.ndarray):
        raise ValueError(f"{what}: expected a numpy.ndarray, not a {type(array).__name__}.")
    if number_of(array.dtype) is None:
        raise ValueError(f"{what}: arrays of type {array.dtype} are not supported.")


def dense(array: numpy.ndarray) -> numpy.ndarray:
    """Returns the array itself when it is row-major, else a row-major copy."""
    return array if array.flags.c_contiguous and array.flags.aligned else array.copy(order="C")


def empty_like(array: numpy.ndarray) -> numpy.ndarray:
    """Returns an array for received data."""
    return numpy.empty(array.shape, array.dtype)


def describe(array: numpy.ndarray, output: Optional[numpy.ndarray], name: Optional[str] = None) -> _ops.Tensor:
    """Returns the op layer's view of a dense array and of the array for the result."""
    return _ops.Tensor(
        array.__array_interface__["data"][0],
        0 if output is None else output.__array_interface__["data"][0],
        number_of(array.dtype),
        _ops.pairs(array.shape, output is None) if is_complex(array) else array.shape,
        name,
    )


def copy(target: numpy.ndarray, source: numpy.ndarray) -> None:
    """Copies the values of `source` to `target`."""
    target[...] = source


def take(output: _ops.RawOutput, like: numpy.ndarray) -> numpy.ndarray:
    """Returns a new array with a copy of the runtime's output."""
    array = numpy.empty(output.shape[:-1] if is_complex(like) else output.shape, like.dtype)
    if output.address and array.size:
        ctypes.memmove(array.__array_interface__["data"][0], output.address, array.nbytes)
    return array


def splits(numbers: list) -> numpy.ndarray:
    """Returns the received splits as an array."""
    return numpy.array(numbers, dtype=numpy.int32)
