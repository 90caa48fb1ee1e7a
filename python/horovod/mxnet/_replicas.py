"""Reads a Gluon trainer, or an optimizer of MXNet, for the check of replicas (horovod._replicas)."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Sequence, Tuple

from horovod._replicas import Check, Options
from horovod.numpy._replicas import ArrayModel, is_comparable
from horovod.process_sets import ProcessSet

_OPTIONS = ("learning_rate", "momentum", "wd", "beta1", "beta2", "rescale_grad")


class ReplicaCheck(Check):
    """The check of a trainer."""

    subject = "hvd.DistributedTrainer"
    remedy = (
        "Call hvd.broadcast_parameters(net.collect_params(), root_rank=0) when the model is complete and its "
        "checkpoint is loaded"
    )
    remedy_of_options = "load the trainer's states on all ranks"
    waits_at_once = False  # a step returns at once


class _Model(ArrayModel):
    """Reads `owner`, to which it refers weakly."""

    def __init__(self, owner: Any) -> None:
        self._owner = weakref.ref(owner)

    def options(self) -> Options:
        owner = self._owner()
        optimizer = owner if owner is None else owner._optimizer
        found: Options = [("the class", type(optimizer).__name__)]
        values = ((key, getattr(optimizer, key, None)) for key in _OPTIONS)
        return found + [(key, float(value)) for key, value in values if isinstance(value, (int, float))]


class TrainerModel(_Model):
    """The parameters of a Gluon trainer."""

    def order(self) -> List[List[str]]:
        trainer = self._owner()
        params = [] if trainer is None else trainer._params
        return [[f"gradient.{index}"] for index, param in enumerate(params) if param.grad_req != "null"]

    def parameters(self) -> List[Tuple[str, Any]]:
        trainer: Any = self._owner()
        return _on_host([(param.name, param.list_data()[0]) for param in trainer._params if param._data])


class UpdateModel(_Model):
    """The weights that an optimizer has updated."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self.weights: Dict[Any, Any] = {}

    def order(self) -> List[List[str]]:
        return []  # unknown before the first update

    def parameters(self) -> List[Tuple[str, Any]]:
        return _on_host([(f"weight {index}", weight) for index, weight in self.weights.items()])


def _on_host(named: Sequence[Tuple[str, Any]]) -> List[Tuple[str, Any]]:
    return [(name, array.asnumpy()) for name, array in named if array.stype == "default" and is_comparable(array.dtype)]


class UpdateCheck(ReplicaCheck):
    """The check of an optimizer that updates one weight, or some of them, at a time."""

    subject = "hvd.DistributedOptimizer"

    def __init__(self, optimizer: Any, process_set: ProcessSet) -> None:
        self._updates = UpdateModel(optimizer)
        super().__init__(self._updates, process_set)

    def before_update(self, indices: Sequence[Any], weights: Sequence[Any]) -> None:
        """Called before the gradients of these weights are reduced. A reduction begins with the first weight."""
        known = self._updates.weights
        if not known or indices[0] == next(iter(known)):
            self.before_reduction()
        known.update(zip(indices, weights))
