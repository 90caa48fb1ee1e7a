"""Buckets: the gradients of one optimizer that one request reduces, and their state within a step."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence, Tuple, Union

import torch

from horovod import _ops
from horovod.exceptions import HorovodInternalError
from horovod.torch import _gradient_bucket
from horovod.torch._gradient_states import GradientCopies, GradientStates

# Work in flight: a handle, or a function that waits for the work and stores its result.
Pending = Union[int, Callable[[], None]]


class Interrupted(BaseException):
    """A signal handler raised `error`, of any class, during a wait. The caller may wait for the work again."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def wait(handle: int) -> Any:
    """Waits as _ops.wait does. Raises Interrupted if the handle stays valid, otherwise the error of the work."""
    try:
        return _ops.wait(handle)
    except HorovodInternalError:
        raise
    except BaseException as error:
        try:
            _ops.poll(handle)
        except Exception:
            raise error from None
        raise Interrupted(error) from error


class Bucket:
    """Parameters whose gradients one request reduces, and the requests in flight.

    A bucket lives for many steps. `works` is empty between synchronize and the next backward pass.
    """

    def __init__(self, name: str, params: Sequence[torch.Tensor], passes: int, copies: bool = False) -> None:
        """`copies`: detect writes to gradients by copies."""
        self.name = name
        self.params = list(params)
        self.states = (GradientCopies if copies else GradientStates)(self.params)
        self.works: List[Pending] = []
        self.is_agreed = False  # the ranks have reduced this bucket once
        self.rearm(passes)

    def hooked(self) -> List[torch.Tensor]:
        """Returns the parameters whose hooks report that the gradient is complete."""
        return self.params

    def wanted(self) -> List[torch.Tensor]:
        """Returns the parameters that have or may have a gradient. The other parameters are now frozen on all ranks:
        with a gradient of zeros, the optimizer would still move them by their momentum."""
        return [param for param in self.params if param.requires_grad or param.grad is not None]

    def is_wanted(self) -> bool:
        """Returns whether a parameter has or may have a gradient."""
        return any(param.requires_grad or param.grad is not None for param in self.params)

    def rearm(self, passes: int) -> None:
        """Prepares the bucket for a step of `passes` backward passes."""
        self.passes_left = [passes] * len(self.hooked())
        self.incomplete = len(self.passes_left)  # parameters whose gradient is not yet complete


class PackedBucket(Bucket):
    """Small gradients that travel together after the backward pass. Only the last gradient has a hook, so that the
    other gradients cost nothing during the backward pass."""

    def __init__(self, named: Sequence[Tuple[str, torch.Tensor]], passes: int, copies: bool = False) -> None:
        self.names = [name for name, _ in named]
        super().__init__(f"{self.names[0]}+{len(named) - 1}", [param for _, param in named], passes, copies)
        self.gradients = _gradient_bucket.make(self.params)

    def hooked(self) -> List[torch.Tensor]:
        return self.params[:1]

    def apart(self, passes: int) -> List[Bucket]:
        """Returns a separate bucket for each parameter that has or may have a gradient."""
        return [
            Bucket(name, [param], passes)
            for name, param in zip(self.names, self.params)
            if param.requires_grad or param.grad is not None
        ]
