"""What gradients become on the wire."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch


class Compressor:
    """Turns a tensor into a smaller one of the same shape, and back."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        """Returns the tensor to send and what `decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Returns `tensor` in its original dtype."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> Tuple[torch.Tensor, Any]:
    if not tensor.dtype.is_floating_point or tensor.element_size() <= 2:
        return tensor, None
    return tensor.to(dtype), tensor.dtype


def _restore(tensor: torch.Tensor, dtype: Optional[torch.dtype]) -> torch.Tensor:
    return tensor if dtype is None else tensor.to(dtype)


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16: half or a quarter of the bytes, values to 65,504."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return _cast(tensor, torch.float16)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return _restore(tensor, ctx)


class BF16Compressor(Compressor):
    """Sends float32 and float64 as bfloat16: float32's range, 8 bits of precision."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return _cast(tensor, torch.bfloat16)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return _restore(tensor, ctx)


class Compression:
    """The choices for `compression` arguments."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
