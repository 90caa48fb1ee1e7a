"""States of PyTorch programs that start again from their last commit: `hvd.elastic`.

Jobs keep their size in this release; see `run`.
"""

from __future__ import annotations

import copy
import random
from typing import Any, Dict, Iterator, List, Tuple, Type

import torch

from horovod import _basics
from horovod._elastic import ObjectState, State, run
from horovod.torch.functions import broadcast_optimizer_state, broadcast_parameters
from horovod._frontend import broadcast_object

__all__ = [
    "ElasticSampler", "ObjectState", "State", "TorchState", "get_handler_registry", "run",
    "set_handler_registry",
]


class ElasticSampler(torch.utils.data.Sampler):
    """This rank's part of a data set, without what has been processed in this epoch already.

    `shuffle`: in an order that all ranks know, of `seed` and the epoch. Every rank gets equally many
    samples; the last ones are some of the first again where numbers do not divide evenly.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: nothing of it has been processed. Call it at its end, for the next."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """All ranks have processed a batch of this size."""
        self.processed_num += batch_size * self.num_replicas

    def reset(self) -> None:
        """Shares what remains of the epoch among the ranks that there are."""
        initialized = _basics.is_initialized()
        self.rank = _basics.rank() if initialized else 0
        self.num_replicas = _basics.size() if initialized else 1
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        remaining = order[self.processed_num :]
        self.num_samples = -(-len(remaining) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        while remaining and len(remaining) < self.total_size:
            remaining += remaining[: self.total_size - len(remaining)]
        self.remaining_indices: List[int] = remaining

    def state_dict(self) -> Dict[str, int]:
        """Epoch, and how many samples of it all ranks together have processed."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """Goes on where a `state_dict` was taken."""
        self.epoch, self.processed_num = state["epoch"], state["processed_num"]
        self.reset()

    def __iter__(self) -> Iterator[int]:
        return iter(self.remaining_indices[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples


class _Handler:
    """Keeps one value by its state_dict."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        raise NotImplementedError


class ModelStateHandler(_Handler):
    def sync(self) -> None:
        """Parameters and buffers of rank 0 on all ranks, which must all call it."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(_Handler):
    def sync(self) -> None:
        """State and options of rank 0 on all ranks, which must all call it."""
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(_Handler):
    def sync(self) -> None:
        """Rank 0's place, which goes with its model's weights, on all ranks, which must all call it."""
        self.value.load_state_dict(
            broadcast_object(self.value.state_dict(), 0, "elastic.sampler"))
        self.save()


_registry: List[Tuple[Type[Any], Type[_Handler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> List[Tuple[Type[Any], Type[_Handler]]]:
    """Which handler keeps values of which type; the first that fits does."""
    return list(_registry)


def set_handler_registry(registry: List[Tuple[Type[Any], Type[_Handler]]]) -> None:
    """Replaces what `get_handler_registry` returns."""
    _registry[:] = registry


def _handler_for(value: Any) -> Any:
    return next((handler(value) for type_, handler in _registry if isinstance(value, type_)), None)


class TorchState(ObjectState):
    """Model, optimizer, samplers and whatever else training needs: each an attribute.

    Modules, optimizers and ElasticSamplers are kept by their state_dict, other keyword arguments as
    copies. An attribute that is set to another module, optimizer or sampler is saved at once.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        self.__dict__["_handlers"] = {}
        plain = {}
        for name, value in {"model": model, "optimizer": optimizer, **kwargs}.items():
            handler = _handler_for(value)
            if handler is not None:
                self._handlers[name] = handler
            elif value is not None or name in kwargs:
                plain[name] = value
        super().__init__(**plain)
        for name, handler in self._handlers.items():
            self.__dict__[name] = handler.value

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._handlers:
            handler = _handler_for(value)
            if handler is None:
                raise ValueError(f"TorchState: {name} is a {type(value).__name__} now; give it another "
                                 "module, optimizer or sampler.")
            self._handlers[name] = handler
        self.__dict__[name] = value

    def save(self) -> None:
        """Keeps all of it in this process's memory."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Goes back to what was saved last."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """All of it becomes what rank 0 has; all ranks must call it."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self) -> None:
        """Samplers share what remains among the ranks that there are."""
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()
