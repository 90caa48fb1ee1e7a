"""Exchanges of the ranks about the closure of a step: its loss, and whether gradients are there before it."""

from __future__ import annotations

import numbers
from typing import Any, Callable, Optional

import torch

from horovod import _objects, _ops
from horovod._ops import Average, Max, Min, Sum
from horovod.process_sets import id_of
from horovod.torch._allreduce import allreduce_async_


class _Replaced(torch.autograd.Function):
    """The mean loss of all ranks in place of that of this rank, whose graph it keeps."""

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, mean: float) -> torch.Tensor:
        return torch.full_like(loss, mean)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None


def _number(loss: Any) -> Optional[float]:
    """Returns the loss as a number; None if it is something else, such as a dict."""
    if isinstance(loss, torch.Tensor):
        is_real = loss.layout is torch.strided and not loss.is_complex() and loss.dtype is not torch.bool
        return float(loss.detach()) if is_real and loss.numel() == 1 else None
    return float(loss) if isinstance(loss, numbers.Real) and not isinstance(loss, bool) else None


def _is_array(loss: Any) -> bool:
    """Returns whether the loss is an array of NumPy with one number."""
    kind = getattr(getattr(loss, "dtype", None), "kind", "")
    return kind in ("f", "i") and not isinstance(loss, numbers.Real) and loss.size == 1


def _like(loss: Any, mean: float) -> Any:
    if not isinstance(loss, torch.Tensor):
        return mean if isinstance(loss, numbers.Integral) else type(loss)(mean)
    if not loss.requires_grad:
        return torch.full_like(loss, mean)
    with torch.enable_grad():
        return _Replaced.apply(loss, mean)


def share_loss(loss: Any, reducer: Any) -> Callable[[], Any]:
    """Returns a function that waits for the losses of all ranks, and returns their mean (with Sum their sum) in the
    form of this loss. A value that is no number stays as it is, and must be none on all ranks."""
    if _is_array(loss):
        wait_for_tensor = share_loss(torch.tensor(loss), reducer)
        return lambda: wait_for_tensor().numpy()
    number, name = _number(loss), f"loss.{next(iter(reducer.names.values()))}"
    sent = torch.tensor(
        [number or 0.0, float(number is not None), float(number is None)], dtype=torch.float64, device="cpu"
    )
    op = Sum if reducer.op == Sum else Average
    handle = allreduce_async_(sent, None, name, op, process_set=reducer.process_set)

    def wait() -> Any:
        _ops.wait(handle)
        mean, numbers_, others = sent.tolist()
        if numbers_ and others:
            kinds = _objects.allgather_object((number is None, type(loss).__name__), name, id_of(reducer.process_set))
            rank, kind = next(
                (rank, kind) for rank, (is_other, kind) in zip(reducer.process_set.ranks, kinds) if is_other
            )
            raise AssertionError(
                f"The closure of step() has returned a {kind} on rank {rank} and a loss on another rank; return the "
                "loss on all ranks, or on none."
            )
        return loss if number is None else _like(loss, mean)

    return wait


class FormerGradients:
    """The agreement of the ranks whether gradients are there before the first evaluation of a closure, as in
    Sharpness-Aware Minimization, whose step reads them. With Average, Min and Max they can be reduced before a closure
    that adds to them; with Sum they would be multiplied."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drops the agreement of a step that was interrupted."""
        self.are_reduced = False  # the ranks have agreed to reduce them, and have not ended that
        self._sent: Any = None
        self._handle: Any = None

    def is_interrupted(self) -> bool:
        """Returns whether a signal handler has raised while the ranks agreed."""
        return self._sent is not None

    def agree(self, reducer: Any) -> None:
        """Sets `are_reduced`. Raises AssertionError on all ranks if some ranks have such gradients."""
        if reducer.op not in (Average, Min, Max) or not reducer.buckets:
            return
        name = f"closure.{next(iter(reducer.names.values()))}"
        if self._sent is None:
            has = reducer.has_gradients()
            self._sent = torch.tensor([float(has), float(not has)], dtype=torch.float32, device="cpu")
            self._handle = allreduce_async_(self._sent, None, name, Max, process_set=reducer.process_set)
        _ops.wait(self._handle)
        have, lack = self._sent.tolist()
        self.forget()
        if have and lack:
            found = _objects.allgather_object(reducer.has_gradients(), name, id_of(reducer.process_set))
            rank = reducer.process_set.ranks[found.index(True)]
            raise AssertionError(
                f"Rank {rank} has called backward() before step(closure), and another rank has not: call it on all "
                "ranks, or call optimizer.zero_grad() after it."
            )
        self.are_reduced = bool(have)
