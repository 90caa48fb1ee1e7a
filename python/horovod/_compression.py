"""Compression of gradients in transfer: a cast to a narrower type."""

from __future__ import annotations

from typing import Any, Callable, Tuple, Type

from horovod._ops import Average


def check_choices(op: Any, compression: Any) -> None:
    """Raises ValueError unless the arguments are a reduction and a compressor."""
    if op not in range(6):
        raise ValueError(
            f"op is {op!r}, a {type(op).__name__}; give hvd.Average, hvd.Sum or another of hvd's reductions."
        )
    check_compression(compression)


def check_compression(compression: Any) -> None:
    """Raises ValueError unless the argument is a compressor."""
    if not hasattr(compression, "compress") or not hasattr(compression, "decompress"):
        raise ValueError(
            f"compression is {compression!r}, a {type(compression).__name__}; give "
            "hvd.Compression.none or another of hvd.Compression."
        )


def check_predivision(factor: Any, op: Any) -> None:
    """Raises ValueError unless the factor can split the average `op` into two factors."""
    if not hasattr(factor, "__float__") or isinstance(factor, bool):
        raise ValueError(f"gradient_predivide_factor is {factor!r}, a {type(factor).__name__}; give a number above 0.")
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor works with op=hvd.Average only.")
    if not factor > 0:
        raise ValueError(f"gradient_predivide_factor must be positive, not {factor}.")


def checked_groups(groups: Any, num_groups: Any) -> Any:
    """Returns `groups`, or else the older `num_groups`: None, a number above 0, or lists of variables. Raises
    ValueError for anything else."""
    groups = groups if groups is not None else (num_groups or None)
    is_right = groups is None or (
        groups > 0
        if isinstance(groups, int)
        else isinstance(groups, (list, tuple)) and all(isinstance(group, (list, tuple)) for group in groups)
    )
    if not is_right:
        raise ValueError("groups is None, a number above 0, or a list of lists of variables.")
    return groups


class Compressor:
    """Turns a tensor into a smaller one of the same shape, and back."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        """Returns the tensor to send and the context for `decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns `tensor` in its original dtype."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors without a change."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


def compressor_to(
    dtype: Any, name: str, module: str, is_wide: Callable[[Any], bool], cast: Callable[[Any, Any], Any]
) -> Type[Compressor]:
    """Returns the public class `name` of `module`, which compresses a tensor to `dtype` if `is_wide` returns true: the
    tensor has a floating-point type of more than two bytes."""

    class Cast(Compressor):
        @staticmethod
        def compress(tensor: Any) -> Tuple[Any, Any]:
            return (cast(tensor, dtype), tensor.dtype) if is_wide(tensor) else (tensor, None)

        @staticmethod
        def decompress(tensor: Any, ctx: Any) -> Any:
            return tensor if ctx is None else cast(tensor, ctx)

    values = {
        "FP16Compressor": "float16: half or a quarter of the bytes, values to 65,504",
        "BF16Compressor": "bfloat16: float32's range, 8 bits of precision",
    }[name]
    Cast.__doc__ = f"Sends float32 and float64 as {values}."
    Cast.__name__ = Cast.__qualname__ = name
    Cast.__module__ = module
    return Cast
