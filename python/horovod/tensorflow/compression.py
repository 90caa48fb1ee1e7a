"""Compression of gradients for the wire."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._compression import Compressor, NoneCompressor, compressor_to  # noqa: F401


def _is_wide(tensor: Any) -> bool:
    return tensor.dtype.is_floating and tensor.dtype.size > 2


FP16Compressor = compressor_to(tf.float16, "FP16Compressor", __name__, _is_wide, tf.cast)
BF16Compressor = compressor_to(tf.bfloat16, "BF16Compressor", __name__, _is_wide, tf.cast)


class Compression:
    """The choices for `compression` arguments."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
