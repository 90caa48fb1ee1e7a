"""The states of a PyTorch program that can be saved, restored and made equal on all ranks."""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Tuple, Type

import torch

from horovod._elastic import ObjectState
from horovod._frontend import broadcast_object
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "ModelStateHandler", "OptimizerStateHandler", "SamplerStateHandler", "StateHandler", "TorchState",
    "get_handler_registry", "set_handler_registry",
]


class StateHandler:
    """Keeps one value of a TorchState: subclasses say how, and are made with the value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keeps a copy of what the value is now."""
        raise NotImplementedError

    def restore(self) -> None:
        """The value becomes what was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """The value becomes rank 0's, and is saved; all ranks must call it."""
        raise NotImplementedError


class _ByStateDict(StateHandler):
    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))


class ModelStateHandler(_ByStateDict):
    def sync(self) -> None:
        """Parameters and buffers of rank 0 on all ranks, which must all call it."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(_ByStateDict):
    def sync(self) -> None:
        """State and options of rank 0 on all ranks, which must all call it."""
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(_ByStateDict):
    def sync(self) -> None:
        """Rank 0's place, which goes with its model's weights, on all ranks, which must all call it."""
        self.value.load_state_dict(
            broadcast_object(self.value.state_dict(), 0, "elastic.sampler"))
        self.save()


_registry: List[Tuple[Type[Any], Type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> List[Tuple[Type[Any], Type[StateHandler]]]:
    """Which handler keeps values of which type; the first that fits does."""
    return list(_registry)


def set_handler_registry(registry: List[Tuple[Type[Any], Type[StateHandler]]]) -> None:
    """Replaces what `get_handler_registry` returns."""
    _registry[:] = registry


def _handler_for(value: Any) -> Any:
    return next((handler(value) for type_, handler in _registry if isinstance(value, type_)), None)


class TorchState(ObjectState):
    """Model, optimizer, samplers and whatever else training needs: each an attribute.

    Modules, optimizers and ElasticSamplers are kept by their state_dict, other keyword arguments as
    copies. An attribute that is set to another module, optimizer or sampler is saved at once.
    """

    _handlers: Dict[str, Any]

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
