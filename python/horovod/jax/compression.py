"""Compression of gradients for the wire."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import jax.numpy as jnp

from horovod._compression import Compressor, NoneCompressor, compressor_to  # noqa: F401


def _is_wide(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize > 2


def _cast(array: Any, dtype: Any) -> Any:
    return array.astype(dtype)


FP16Compressor = compressor_to(jnp.float16, "FP16Compressor", __name__, _is_wide, _cast)
BF16Compressor = compressor_to(jnp.bfloat16, "BF16Compressor", __name__, _is_wide, _cast)


class Compression:
    """The choices for `compression` arguments."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def compress_all(compression: Any, arrays: Sequence[Any]) -> Tuple[List[Any], List[Any]]:
    """Returns the array to send for each array, and the contexts for `decompress_all`."""
    if compression is NoneCompressor:
        return list(arrays), []
    pairs = [compression.compress(jnp.asarray(array)) for array in arrays]
    return [sent for sent, _ in pairs], [context for _, context in pairs]


def decompress_all(compression: Any, arrays: Sequence[Any], contexts: Sequence[Any]) -> List[Any]:
    """Returns the arrays in their original types."""
    if compression is NoneCompressor:
        return list(arrays)
    return [compression.decompress(*pair) for pair in zip(arrays, contexts)]
