"""What gradients become on the wire."""

from __future__ import annotations

from typing import Any, Tuple

import tensorflow as tf


class Compressor:
    """Turns a tensor into a smaller one of the same shape, and back."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        """Returns the tensor to send and what `decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Returns `tensor` in its original dtype."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return tensor


def _cast(tensor: tf.Tensor, dtype: tf.DType) -> Tuple[tf.Tensor, Any]:
    if not tensor.dtype.is_floating or tensor.dtype.size <= 2:
        return tensor, None
    return tf.cast(tensor, dtype), tensor.dtype


def _restore(tensor: tf.Tensor, dtype: Any) -> tf.Tensor:
    return tensor if dtype is None else tf.cast(tensor, dtype)


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16: half or a quarter of the bytes, values to 65,504."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        return _cast(tensor, tf.float16)

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return _restore(tensor, ctx)


class BF16Compressor(Compressor):
    """Sends float32 and float64 as bfloat16: float32's range, 8 bits of precision."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        return _cast(tensor, tf.bfloat16)

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return _restore(tensor, ctx)


class Compression:
    """The choices for `compression` arguments."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
