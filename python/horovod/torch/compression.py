"""Compression of gradients for the wire."""

from __future__ import annotations

from typing import Any

import torch

from horovod._compression import Compressor, NoneCompressor, compressor_to  # noqa: F401


def _is_wide(tensor: torch.Tensor) -> bool:
    # For a value that is not a tensor, the collective raises its own error.
    return isinstance(tensor, torch.Tensor) and tensor.dtype.is_floating_point and tensor.element_size() > 2


def _cast(tensor: torch.Tensor, dtype: Any) -> torch.Tensor:
    return tensor.to(dtype)


FP16Compressor = compressor_to(torch.float16, "FP16Compressor", __name__, _is_wide, _cast)
BF16Compressor = compressor_to(torch.bfloat16, "BF16Compressor", __name__, _is_wide, _cast)


class Compression:
    """The choices for `compression` arguments."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
