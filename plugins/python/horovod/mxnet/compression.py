"""What gradients become on the wire."""

from __future__ import annotations

from typing import Any, Tuple

import numpy


class Compressor:
    """Turns an array into a smaller one of the same shape, and back."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        """Returns the array to send and what `decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns `tensor` in its original dtype."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends arrays as they are."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16: half or a quarter of the bytes, values to 65,504."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        if numpy.dtype(tensor.dtype) not in (numpy.float32, numpy.float64):
            return tensor, None
        return tensor.astype("float16"), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The choices for `compression` arguments."""

    none = NoneCompressor
    fp16 = FP16Compressor
