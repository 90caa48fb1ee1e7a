"""Which gradients of one optimizer travel as one request, and where they stand in a step."""

from __future__ import annotations

from typing import Callable, List, Sequence, Tuple, Union

import torch

from horovod.torch import _gradient_bucket

# Work in flight: a handle, or a function that waits for it and stores the result.
Pending = Union[int, Callable[[], None]]


class Bucket:
    """Parameters whose gradients travel as one request, and the requests in flight.

    Lives through many steps; `works` is empty between synchronize and the next backward.
    """

    def __init__(self, name: str, params: Sequence[torch.Tensor], passes: int) -> None:
        self.name = name
        self.params = list(params)
        self.works: List[Pending] = []
        self.is_agreed = False  # the ranks have reduced it once
        self.rearm(passes)

    def hooked(self) -> List[torch.Tensor]:
        """The parameters that say when their gradient is there."""
        return self.params

    def rearm(self, passes: int) -> None:
        """Makes ready for a step of so many backward passes."""
        self.passes_left = [passes] * len(self.hooked())
        self.incomplete = len(self.passes_left)  # parameters whose gradient is not yet complete


class PackedBucket(Bucket):
    """Small gradients that leave together once backward is over: only the one that comes last is
    watched, so that the others cost nothing between the operations of backward."""

    def __init__(self, named: Sequence[Tuple[str, torch.Tensor]], passes: int) -> None:
        self.names = [name for name, _ in named]
        super().__init__(f"{self.names[0]}+{len(named) - 1}", [param for _, param in named], passes)
        self.gradients = _gradient_bucket.GradientBucket(self.params)

    def hooked(self) -> List[torch.Tensor]:
        return self.params[:1]

    def apart(self, passes: int) -> List[Bucket]:
        """Each parameter that has or may have a gradient as a bucket of its own."""
        return [Bucket(name, [param], passes) for name, param in zip(self.names, self.params)
                if param.requires_grad or param.grad is not None]
