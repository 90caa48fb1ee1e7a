"""Exchanges between the ranks about a step's closure: its loss, and whether gradients exist before it runs."""

from __future__ import annotations

import numbers
from typing import Any, Callable, Dict, List, Optional

import torch

from horovod import _objects
from horovod._ops import Average, Max, Min, Sum
from horovod.process_sets import id_of
from horovod.torch._allreduce import allreduce_async_
from horovod.torch._buckets import Bucket, Interrupted, wait
from horovod.torch._step import INTERRUPTED, READ


class _Replaced(torch.autograd.Function):
    """Replaces this rank's loss by the mean loss of all ranks, and keeps the graph of this rank's loss."""

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, mean: float) -> torch.Tensor:
        return torch.full_like(loss, mean)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None


def _number(loss: Any) -> Optional[float]:
    """Returns the loss as a number; None if it is another kind of value, such as a dict."""
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
    form of this loss. A value that is not a number is returned unchanged, and then must not be a number on any rank."""
    if _is_array(loss):
        wait_for_tensor = share_loss(torch.tensor(loss), reducer)
        return lambda: wait_for_tensor().numpy()
    number, name = _number(loss), f"loss.{next(iter(reducer.names.values()))}"
    sent = torch.tensor(
        [number or 0.0, float(number is not None), float(number is None)], dtype=torch.float64, device="cpu"
    )
    op = Sum if reducer.op == Sum else Average
    handle = allreduce_async_(sent, None, name, op, process_set=reducer.process_set)

    def finish() -> Any:
        wait(handle)
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

    return finish


class ClosureStep:
    """A step with a closure, up to the end of its first evaluation. If a signal handler raises meanwhile, the next call
    continues there: with the agreement of the ranks, with the reduction of former gradients, with the work that the
    interrupted backward pass had started (`left`, then `kept`), or with the loss of the evaluation (`loss`).

    Before the first evaluation, the ranks agree whether the parameters already have gradients, which the step of
    Sharpness-Aware Minimization reads. With Average, Min and Max, the ranks reduce these former gradients before the
    closure adds to them: the next reduction leaves their part unchanged. With Sum, the next reduction would multiply
    their part by the number of ranks."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drops the state of an interrupted call."""
        self.loss: Optional[Callable[[], Any]] = None  # waits for the loss of an evaluation whose closure has run
        # The buckets in flight when the backward pass of the closure was interrupted. Other ranks count this work to
        # this step.
        self.left: Optional[List[Bucket]] = None
        self.kept: Dict[Bucket, List[Optional[torch.Tensor]]] = {}  # reduced gradients of those buckets
        self._are_former_reduced = False  # the ranks have agreed to reduce former gradients, but have not finished
        self._sent: Any = None
        self._handle: Any = None

    def is_agreeing(self) -> bool:
        """Returns whether a signal handler raised during the agreement of the ranks."""
        return self._sent is not None

    def begin(self, reducer: Any) -> None:
        """Prepares for the evaluations of a closure."""
        goes_on = self.left is not None or self.loss is not None or reducer.step.state is INTERRUPTED
        if self.is_agreeing() or not (goes_on or self._are_former_reduced):
            self._agree(reducer)
        if self._are_former_reduced:
            reducer.synchronize(READ)
            self._are_former_reduced = False
        elif self.loss is None and (self.left is not None or reducer.has_work()):
            reducer.drain()
            for bucket in self.left or []:  # the step must not reduce these buckets again
                self.kept[bucket] = [None if param.grad is None else param.grad.clone() for param in bucket.params]
            self.left = None

    def restore(self) -> None:
        """Gives the parameters the gradients that the work of an interrupted pass has reduced."""
        while self.kept:
            bucket, grads = self.kept.popitem()
            for param, grad in zip(bucket.params, grads):
                param.grad = grad

    def abandon(self) -> None:
        """Waits for the agreement in flight, and drops the state of an interrupted call."""
        if self._handle is not None:
            self._wait()
        self.forget()

    def _wait(self) -> None:
        try:
            wait(self._handle)
        except Interrupted as interruption:
            raised = interruption.error
        except BaseException:
            self._sent = self._handle = None
            raise
        else:
            return
        raise raised

    def _agree(self, reducer: Any) -> None:
        """Sets `_are_former_reduced`. Raises AssertionError on all ranks if only some ranks have such gradients."""
        if reducer.op not in (Average, Min, Max) or not reducer.buckets:
            return
        name = f"closure.{next(iter(reducer.names.values()))}"
        if self._sent is None:
            has = reducer.has_gradients()
            self._sent = torch.tensor([float(has), float(not has)], dtype=torch.float32, device="cpu")
            self._handle = allreduce_async_(self._sent, None, name, Max, process_set=reducer.process_set)
        self._wait()
        have, lack = self._sent.tolist()
        self._sent = self._handle = None
        if have and lack:
            found = _objects.allgather_object(reducer.has_gradients(), name, id_of(reducer.process_set))
            rank = reducer.process_set.ranks[found.index(True)]
            raise AssertionError(
                f"Rank {rank} has called backward() before step(closure), and another rank has not: call it on all "
                "ranks, or call optimizer.zero_grad() after it."
            )
        self._are_former_reduced = bool(have)
