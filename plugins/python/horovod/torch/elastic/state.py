"""The states of a PyTorch program that can be saved, restored and made equal on all ranks."""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Tuple, Type, Union

import torch

from horovod._basics import rank as rank
from horovod._elastic import ObjectState, source_rank
from horovod._frontend import allgather_object as allgather_object, broadcast_object
from horovod.torch.elastic.iterable import ElasticIterable
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "ModelStateHandler", "OptimizerStateHandler", "SamplerStateHandler", "StateHandler", "TorchState",
    "get_handler_registry", "set_handler_registry",
]


class StateHandler:
    """Saves, restores and synchronises one value of a TorchState. Subclasses handle one type of value.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keeps a copy of the value."""
        raise NotImplementedError

    def restore(self) -> None:
        """Sets the value to the last saved copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Sets the value to rank 0's, and saves it. All ranks must call it."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Replaces the value, and saves the new one."""
        self.value = value
        self.save()


class _ByStateDict(StateHandler):
    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))


class ModelStateHandler(_ByStateDict):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)

    def sync(self) -> None:
        """Copies parameters and buffers of rank 0 to all ranks. All ranks must call it."""
        broadcast_parameters(self.value.state_dict(), root_rank=source_rank())
        self.save()


class OptimizerStateHandler(_ByStateDict):
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)

    def sync(self) -> None:
        """Copies state and options of rank 0 to all ranks. All ranks must call it."""
        broadcast_optimizer_state(self.value, root_rank=source_rank())
        self.save()


class SamplerStateHandler(_ByStateDict):
    def __init__(self, sampler: Union[ElasticSampler, ElasticIterable]) -> None:
        super().__init__(sampler)

    def sync(self) -> None:
        """Copies rank 0's position in the epoch to all ranks, to match its weights. All ranks must call
        it."""
        self.value.load_state_dict(
            broadcast_object(self.value.state_dict(), source_rank(), "elastic.sampler"))
        self.save()


_registry: List[Tuple[Type[Any], Type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (ElasticIterable, SamplerStateHandler),
]


def get_handler_registry() -> List[Tuple[Type[Any], Type[StateHandler]]]:
    """The list of types and their handlers, which a program may change. The first type that matches a value
    decides."""
    return _registry


def set_handler_registry(registry: List[Tuple[Type[Any], Type[StateHandler]]]) -> None:
    """Replaces what `get_handler_registry` returns."""
    global _registry
    _registry = registry


def _handler_of(value: Any) -> Any:
    return next((handler for type_, handler in _registry if isinstance(value, type_)), None)


class TorchState(ObjectState):
    """Model, optimizer, samplers and other values that training needs, each as an attribute.

    Saves modules, optimizers, ElasticSamplers and ElasticIterables by their state_dict, and other keyword arguments as
    copies. An attribute that is set to another module, optimizer or sampler is saved at once. `model` and
    `optimizer` may be None at first.
    """

    _handlers: Dict[str, Any]

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        self.__dict__["_handlers"] = {}
        plain = {}
        for name, value in {"model": model, "optimizer": optimizer, **kwargs}.items():
            handler = _handler_of(value)
            if handler is not None:
                self._handlers[name] = handler(value)
            else:
                plain[name] = value
        super().__init__(**plain)
        for name, handler in self._handlers.items():
            self.__dict__[name] = handler.value

    def __setattr__(self, name: str, value: Any) -> None:
        handler, saved = _handler_of(value), self.__dict__.get("_saved_state", {})
        if name in self._handlers:
            if handler is None:
                raise ValueError(f"TorchState: {name} is a {type(value).__name__} now; give it another "
                                 "module, optimizer or sampler.")
            if type(self._handlers[name]) is handler:
                self._handlers[name].set_value(value)
            else:
                self._handlers[name] = handler(value)
        elif name in saved and handler is not None:
            del saved[name]
            self._handlers[name] = handler(value)
        self.__dict__[name] = value

    def save(self) -> None:
        """Keeps a copy of all values in this process's memory."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Sets all values to the last saved copy."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Sets all values to those of rank 0. All ranks must call it."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self) -> None:
        """Divides the remaining samples among the current ranks."""
        for handler in self._handlers.values():
            if isinstance(handler.value, (ElasticSampler, ElasticIterable)):
                handler.value.reset()
