"""Records of the gradients of a bucket after backward, to detect later writes to them."""

from __future__ import annotations

import operator
import weakref
from typing import Any, List, NamedTuple, Optional, Sequence, Set

import torch


class _Record(NamedTuple):
    """Gradients, and the state of each at that time: its version, or a copy."""

    grads: List[Any]
    states: List[Any]


def _versions(grads: Sequence[Any]) -> List[Any]:
    try:
        return [None if grad is None else grad._version for grad in grads]
    except RuntimeError:  # inference tensors have no version
        return [None if grad is None or grad.is_inference() else grad._version for grad in grads]


def is_zero(grad: Any) -> bool:
    """Returns whether all values are zero. Waits for a GPU that computes them."""
    return not (grad.coalesce().values() if grad.is_sparse else grad).any()


def _copies(grads: Sequence[Any]) -> List[Any]:
    return [None if grad is None else grad.detach().clone() for grad in grads]


def _is_equal(was: Any, now: Any) -> bool:
    """Returns whether a gradient still has the values of its copy."""
    if was is None or now is None:
        return was is now
    if was.layout is not torch.strided or now.layout is not torch.strided:
        was, now = was.to_dense(), now.to_dense()
    return was.shape == now.shape and bool(((was == now) | ((was != was) & (now != now))).all())


class SteppedGradients:
    """The gradients of `params` after an optimizer's step, by identity and version. Does not keep the gradients alive.
    `copies`: also compares copies."""

    def __init__(self, params: Sequence[torch.Tensor], copies: bool) -> None:
        grads: List[Any] = [param.grad for param in params]
        self._values = _copies(grads) if copies else []
        self._params, self._versions = params, _versions(grads)
        self._grads = [None if grad is None else weakref.ref(grad) for grad in grads]

    def are_replaced(self) -> bool:
        """Returns whether the program has since assigned other gradients, or written values other than zero."""
        grads: List[Any] = [param.grad for param in self._params]
        for grad, version, was, reference in zip(grads, _versions(grads), self._versions, self._grads):
            if grad is None:
                continue
            if reference is None or reference() is not grad:
                return True
            if version != was and not is_zero(grad):
                return True
        return False

    def are_written_uncounted(self) -> bool:
        """Returns whether a write to nonzero values has changed a gradient's copy but not its version."""
        return any(
            param.grad is not None and not _is_equal(value, param.grad) and not is_zero(param.grad)
            for param, value in zip(self._params, self._values)
        )


class GradientStates:
    """The identities and versions of the gradients of `params` at the end of the last backward pass or at submission.

    A pass may add to gradients that are not submitted: `begin_pass` and `end_pass` distinguish these additions from
    writes of the program. Writes that do not change `_version` stay undetected.
    """

    def __init__(self, params: Sequence[torch.Tensor]) -> None:
        self._params = params
        self.forget()

    def forget(self) -> None:
        """Detects no writes until the next record."""
        self._last: Optional[_Record] = None
        self._before: Optional[_Record] = None  # gradients at the beginning of the running pass
        self._written: Set[int] = set()  # gradients written before a later pass that has not added to these gradients

    def begin_pass(self) -> None:
        """Notes which gradients the program has written since the last record."""
        self._before = self._read()
        if self._last is not None:
            self._written.update(self._changed(self._last, self._before))

    def end_pass(self) -> bool:
        """Records the gradients, unless no pass of this step has added to them yet. Returns whether this pass has added
        to them."""
        before, self._before = self._before, None
        now = self._read()
        if before is None or self._is_same(before, now):
            has_added = before is None
        else:
            has_added = True
            if self._written:
                self._written.difference_update(self._changed(before, now))
        if has_added or self._last is not None:
            self._last = now
        return has_added

    def record(self) -> None:
        """Records the gradients at their submission."""
        self._last, self._written = self._read(), set()

    def first_written(self) -> Optional[int]:
        """Returns the index of the first parameter whose gradient the program has written since the record."""
        if self._last is None:
            return None
        now = self._read()
        if not self._written and self._is_same(self._last, now):
            return None
        return min(self._written.union(self._changed(self._last, now)), default=None)

    def _changed(self, was: _Record, now: _Record) -> List[int]:
        # Skip a gradient that was missing before: it is this rank's own, like a gradient of backward.
        return [
            index
            for index, grad in enumerate(was.grads)
            if grad is not None
            and (now.grads[index] is not grad or not self._is_equal(was.states[index], now.states[index]))
        ]

    def _is_same(self, was: _Record, now: _Record) -> bool:
        return was.states == now.states and all(map(operator.is_, was.grads, now.grads))

    def _is_equal(self, was: Any, now: Any) -> bool:
        return was == now

    def _read(self) -> _Record:
        # This code runs several times per step for each gradient, so every line costs time.
        grads = [param.grad for param in self._params]
        return _Record(grads, _versions(grads))


class GradientCopies(GradientStates):
    """GradientStates with copies of the gradients: detects every write that changes a value."""

    def _read(self) -> _Record:
        grads = [param.grad for param in self._params]
        return _Record(grads, _copies(grads))

    def _is_same(self, was: _Record, now: _Record) -> bool:
        return all(map(operator.is_, was.grads, now.grads)) and all(map(self._is_equal, was.states, now.states))

    def _is_equal(self, was: Any, now: Any) -> bool:
        return _is_equal(was, now)
