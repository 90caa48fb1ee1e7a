"""Converts MXNet's arrays to addresses and back. Contains no collective."""

from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Sequence, Tuple

import mxnet
import numpy
from mxnet.base import _LIB, check_call

from horovod import _ops
from horovod._ops import Dtype
from horovod.exceptions import HorovodUnimplementedError

_DTYPES = {
    numpy.dtype(name): getattr(Dtype, name.upper())
    for name in ["uint8", "int8", "int32", "int64", "float16", "float32", "float64", "bool"]
}


def number_of(array: Any) -> Optional[int]:
    """Returns the library's number of the array's dtype; None if the library does not know the dtype."""
    dtype = numpy.dtype(array.dtype)
    return Dtype.BFLOAT16 if dtype.names == ("bfloat16",) else _DTYPES.get(dtype)


def check(array: Any, what: str) -> None:
    """Raises an error of one sentence unless `array` is dense, in host memory or on a GPU, with a known dtype."""
    if not isinstance(array, mxnet.nd.NDArray):
        raise ValueError(f"{what}: expected an mxnet.nd.NDArray, not a {type(array).__name__}.")
    if array.stype != "default":
        raise ValueError(
            f"{what}: arrays of storage type {array.stype} cannot be sent; make it dense with .tostype('default')."
        )
    if not array.context.device_type.startswith("cpu") and not is_on_gpu(array):
        raise HorovodUnimplementedError(
            f"{what}: the array is on {array.context}, and this build of Horovod has no operation "
            "for arrays there; move it with .as_in_context(mx.cpu()) first."
        )
    if number_of(array) is None:
        raise ValueError(f"{what}: arrays of type {numpy.dtype(array.dtype)} are not supported.")


def is_on_gpu(array: Any) -> bool:
    """Returns whether the array travels through host memory."""
    return array.context.device_type == "gpu"


def dense(array: Any) -> Any:
    """Returns the array itself, because MXNet's arrays are row-major; for an array on a GPU, a copy in host memory."""
    return _moved(array, mxnet.cpu()) if is_on_gpu(array) else array


def _moved(array: Any, context: Any) -> Any:
    with mxnet.util.np_shape(True):  # otherwise MXNet takes 0 rows for an unknown number
        return array.as_in_context(context)


def receivers(arrays: Sequence[Any], in_place: bool) -> Tuple[Sequence[Any], bool]:
    """Returns the arrays of a collective and whether it is in place. If arrays are on a GPU, the collective works in
    place on copies in host memory."""
    if in_place or not any(map(is_on_gpu, arrays)):
        return arrays, in_place
    return [array.copy() for array in arrays], True


def returned(results: Sequence[Any], arrays: Sequence[Any]) -> List[Any]:
    """Returns each result on the device of its argument."""
    return [_moved(result, array.context) if is_on_gpu(array) else result for result, array in zip(results, arrays)]


def empty_like(array: Any) -> Any:
    """Returns an array for received data."""
    return _empty(array.shape, array)


def _empty(shape: Any, like: Any) -> Any:
    return type(like)(mxnet.nd.ndarray._new_alloc_handle(shape, like.context, False, like.dtype))


def _address(array: Any) -> int:
    # MXNet computes in the background, so wait for pending operations on the array.
    check_call(_LIB.MXNDArrayWaitToWrite(array.handle))
    return pointer(array)


def pointer(array: Any) -> int:
    """Returns the address of a computed array; 0 when it is empty."""
    if array.size == 0:
        return 0
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(address)))
    return address.value or 0


def describe(array: Any, output: Optional[Any], name: Optional[str] = None) -> _ops.Tensor:
    """Returns the op layer's view of an array and of the array for the result."""
    return _ops.Tensor(_address(array), 0 if output is None else _address(output), number_of(array), array.shape, name)


def copy(target: Any, source: Any) -> None:
    """Copies the values of `source` to `target`."""
    if target.size:
        source.copyto(target)


def take(output: _ops.RawOutput, like: Any) -> Any:
    """Returns a new array with a copy of the runtime's output."""
    with mxnet.util.np_shape(True):  # otherwise MXNet takes 0 rows for an unknown number
        array = _empty(output.shape, like)
        if output.address and array.size:
            size = array.size * numpy.dtype(like.dtype).itemsize
            ctypes.memmove(_address(array), output.address, size)
        return array


def splits(numbers: list) -> Any:
    """Returns the received splits as an array."""
    return mxnet.nd.array(numbers, dtype="int32")
