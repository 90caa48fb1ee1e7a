"""Compression of gradients for the wire."""

from __future__ import annotations

from typing import Any

import numpy

from horovod._compression import Compressor, NoneCompressor, compressor_to  # noqa: F401


def _is_wide(tensor: Any) -> bool:
    return numpy.dtype(tensor.dtype) in (numpy.float32, numpy.float64)


def _cast(tensor: Any, dtype: Any) -> Any:
    return tensor.astype(dtype)


FP16Compressor = compressor_to("float16", "FP16Compressor", __name__, _is_wide, _cast)


class Compression:
    """The choices for `compression` arguments."""

    none = NoneCompressor
    fp16 = FP16Compressor
