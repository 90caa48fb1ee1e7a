"""DistributedOptimizer with op=Adasum: each rank makes its own step, and the ranks combine the steps."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, Optional

import torch

from horovod import _ops
from horovod._ops import Adasum, Max
from horovod.torch._allreduce import allreduce_, allreduce_async_
from horovod.torch._attributes import Attributes
from horovod.torch._replicas import ReplicaCheck, ReplicaModel


class AdasumMixin(Attributes):
    """A mixin before the user's optimizer class. The ranks combine the changes of their local steps instead of
    gradients, so any kind of optimizer works."""

    _replicas: Optional[ReplicaCheck] = None  # the check; None until `compare_replicas`

    def compare_replicas(self) -> None:
        """Makes the check of the replicas."""
        model = ReplicaModel()
        model.watch(self)
        self._replicas = ReplicaCheck(model, self.process_set)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes only the attribute: gradients accumulate until `step`, over any number of passes."""
        self._options = self._options._replace(backward_passes_per_step=passes)

    def synchronize(self) -> None:
        """Does nothing: the gradients stay local."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Raises AssertionError, because Adasum has no reduction to skip."""
        raise AssertionError(
            "skip_synchronize() has no meaning with op=hvd.Adasum, which combines steps and not "
            "gradients; clip or inspect them before step() without it."
        )
        yield

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Runs the optimizer's own step, then changes the parameters by the Adasum of the steps of all
        ranks.

        All ranks must call it. A `closure` is evaluated by this rank alone.
        """
        replicas = self._replicas
        if replicas is not None and self.process_set.size() > 1:
            replicas.before_reduction()
        named = [(name, param) for param, name in self._parameter_names.items() if param.requires_grad]
        with torch.no_grad():
            starts = [param.clone() for _, param in named]
        loss = super().step() if closure is None else super().step(closure)
        with torch.no_grad():
            started = [self._start(name, param - start) for (name, param), start in zip(named, starts)]
            failure = None
            for (_, param), start, (handle, context) in zip(named, starts, started):
                try:
                    delta = self._compression.decompress(_ops.run(handle), context)
                    param.copy_(start.add_(delta))
                except Exception as error:  # wait for the other works before raising the error
                    failure = failure or error
        if failure is not None:
            raise failure
        if replicas is not None and replicas.is_open:
            replicas.note_step()
        return loss

    def _agree_on_overflow(self, found: Dict[Any, torch.Tensor]) -> None:
        """Makes GradScaler skip a step on all ranks or on none: gradients and overflows stay local. `found`: for
        each device, 1 if a gradient on the device is infinite."""
        if not self.process_set.included():
            return
        overflow = max((value.item() for value in found.values()), default=0.0)
        total = torch.tensor([overflow], dtype=torch.float32, device="cpu")
        allreduce_(
            total, None, f"overflow.{next(iter(self._parameter_names.values()))}", Max, process_set=self.process_set
        )
        for value in found.values():
            value.fill_(total.item())

    def _start(self, name: str, delta: torch.Tensor) -> Any:
        compressed, context = self._compression.compress(delta)
        return allreduce_async_(compressed, None, name, Adasum, 1.0, 1.0, self.process_set), context
