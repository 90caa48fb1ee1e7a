"""Maps torch's reductions to those of the runtime."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist

from horovod import _ops
from horovod.torch.distributed import _tensor_bytes


ONE = 1.0  # the factor of most reductions; compared by identity


class Reduction(NamedTuple):
    """`op` and `factor` of the runtime, or `fold`, which joins the values of two ranks."""

    name: str
    op: int
    factor: Any = ONE  # factor before the reduction: a number or a tensor
    fold: Optional[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = None
    tag: int = 0  # number of a fold; ranks compare it

    def apply(self, tensor: torch.Tensor) -> Tuple[torch.Tensor, Reduction]:
        """Returns the tensor, or a scaled copy if the runtime does not accept the factor: the runtime accepts only
        nonzero numbers."""
        if not isinstance(self.factor, torch.Tensor) and self.factor != 0:
            return tensor, self
        return self.scale(tensor), self._replace(factor=ONE)

    def scale(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a scaled copy."""
        with torch.no_grad():
            return tensor.clone().mul_(self.factor)

    def reduce(self, tensors: List[torch.Tensor]) -> torch.Tensor:
        assert self.fold is not None
        return functools.reduce(self.fold, tensors)


_kinds = dist.ReduceOp
_known: Dict[Any, Reduction] = {
    _kinds.SUM: Reduction("SUM", _ops.Sum),
    _kinds.PRODUCT: Reduction("PRODUCT", _ops.Product),
    _kinds.MIN: Reduction("MIN", _ops.Min),
    _kinds.MAX: Reduction("MAX", _ops.Max),
    _kinds.BAND: Reduction("BAND", _ops.Min, fold=torch.bitwise_and, tag=1),
    _kinds.BOR: Reduction("BOR", _ops.Max, fold=torch.bitwise_or, tag=2),
    _kinds.BXOR: Reduction("BXOR", _ops.Max, fold=torch.bitwise_xor, tag=3),
}
if hasattr(_kinds, "AVG"):
    _known[_kinds.AVG] = Reduction("AVG", _ops.Average)
_sum = _known[_kinds.SUM]
_scaled = getattr(_kinds, "PREMUL_SUM", None)


def of(op: Any) -> Reduction:
    """Returns the reduction for torch's `op`; SUM for None."""
    found = _known.get(getattr(op, "op", op)) if op is not None else _sum
    if found is not None:
        return found
    if _scaled is not None and op == _scaled and hasattr(op, "__getstate__"):
        state = op.__getstate__()
        if isinstance(state, tuple) and len(state) == 2:
            return Reduction("PREMUL_SUM", _ops.Sum, state[1])
    raise RuntimeError(
        f"horovod: the reduction {op} is not supported; reduce by SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR or BXOR"
    )


def check(tensor: torch.Tensor, reduction: Reduction) -> None:
    """Raises unless the reduction supports the tensor's dtype."""
    if _tensor_bytes.travels_as_bytes(tensor):
        raise ValueError(f"horovod: numbers of {tensor.dtype} are copied, and not reduced; convert them first")
    if reduction.fold is not None:
        if tensor.is_floating_point() or tensor.is_complex():
            raise RuntimeError(f"Cannot use ReduceOp.{reduction.name} with non-integral dtype")
    elif tensor.is_complex() and reduction.op not in (_ops.Sum, _ops.Average):
        raise ValueError(f"horovod: complex numbers are reduced by SUM and AVG, and not by {reduction.name}")
