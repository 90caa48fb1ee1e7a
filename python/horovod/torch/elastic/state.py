"""The states of a PyTorch program that can be saved, restored and made equal on all ranks."""

from __future__ import annotations

import copy
import time
import warnings
import weakref
from typing import Any, Dict, List, Optional, Tuple, Type, Union

import torch

from horovod import _ops
from horovod._basics import rank as rank
from horovod._elastic import ObjectState, follows_source, is_ours, source_rank
from horovod._frontend import allgather_object as allgather_object, broadcast_object
from horovod._ops import Adasum
from horovod.torch.elastic._memory import Mark, kept_copy
from horovod.torch.elastic.iterable import ElasticIterable
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "ScalerStateHandler",
    "SchedulerStateHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]


class StateHandler:
    """Saves, restores and synchronises one value of a TorchState. Subclasses handle one type of value."""

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
    _is_on_host = False  # copies of device tensors are in host memory

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._saved: Any = None
        self._small: Any = None
        self.save()

    def save(self) -> None:
        self._saved = kept_copy(self.value.state_dict(), self._saved, self._is_on_host)

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Sets the value to that of rank 0, or of `source_rank()`, and saves it. All ranks must call it."""
        self.receive()
        self.save()

    def receive(self) -> None:
        """Sets the value to that of rank 0, or of `source_rank()`. All ranks must call it."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), source_rank(), "elastic.values"))

    def save_small(self) -> None:
        """Keeps a copy of the part that every commit copies, even without a snapshot."""
        self._small = copy.deepcopy(self.value.state_dict())

    def restore_small(self) -> None:
        """Sets the part that every commit copies to the last copy that `save_small` made."""
        self.value.load_state_dict(copy.deepcopy(self._small))

    def marked(self) -> List[Any]:
        """Returns the parts of the value that change only in a step of the optimizer."""
        return []


class ModelStateHandler(_ByStateDict):
    """Handles the parameters and buffers of a module."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)

    def receive(self) -> None:
        """Copies parameters and buffers of rank 0, or of `source_rank()`, to all ranks. All ranks must call it."""
        broadcast_parameters(self.value.state_dict(), root_rank=source_rank())

    def save_small(self) -> None:
        """Keeps a copy of the buffers."""
        values = self.value.state_dict(keep_vars=True)
        for name in [name for name, value in values.items() if isinstance(value, torch.nn.Parameter)]:
            del values[name]
        self._small = kept_copy(values, self._small, self._is_on_host)

    def restore_small(self) -> None:
        """Sets the buffers to the last copy of `save_small`."""
        self.value.load_state_dict(copy.deepcopy(self._small), strict=False)

    def marked(self) -> List[Any]:
        """Returns the parameters."""
        return list(self.value.parameters())


class OptimizerStateHandler(_ByStateDict):
    """Handles the state and options of an optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)

    def receive(self) -> None:
        """Copies state and options of rank 0, or of `source_rank()`, to all ranks. All ranks must call it."""
        broadcast_optimizer_state(self.value, root_rank=source_rank())

    def save_small(self) -> None:
        """Keeps a copy of the options."""
        self._small = [
            {key: copy.deepcopy(value) for key, value in group.items() if key != "params"}
            for group in self.value.param_groups
        ]

    def restore_small(self) -> None:
        """Sets the options to the last copy of `save_small`, and forgets reductions of a step."""
        if hasattr(self.value, "_forget_step"):
            self.value._forget_step()
        for group, options in zip(self.value.param_groups, self._small):
            for key, value in copy.deepcopy(options).items():
                if isinstance(group.get(key), torch.Tensor):  # a compiled step may refer to the tensor
                    group[key].copy_(value)
                else:
                    group[key] = value

    def marked(self) -> List[Any]:
        """Returns the parameters and the state."""
        return [[group["params"] for group in self.value.param_groups], self.value.state]


class SamplerStateHandler(_ByStateDict):
    """Handles the position of a sampler in the epoch, which has to match the weights."""

    def __init__(self, sampler: Union[ElasticSampler, ElasticIterable]) -> None:
        super().__init__(sampler)


class SchedulerStateHandler(_ByStateDict):
    """Handles a learning rate scheduler, without the optimizer that it refers to."""

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)


class ScalerStateHandler(_ByStateDict):
    """Handles a GradScaler."""

    def __init__(self, scaler: Any) -> None:
        super().__init__(scaler)

    def restore(self) -> None:
        """Sets the scale to the last saved one, and forgets a step that was not completed."""
        self._forget_step()
        super().restore()

    def restore_small(self) -> None:
        """Restores as `restore` does, from the last copy of `save_small`."""
        self._forget_step()
        super().restore_small()

    def _forget_step(self) -> None:
        # The scaler would otherwise treat the gradients of the next step as unscaled.
        getattr(self.value, "_per_optimizer_states", {}).clear()


def _is_bypassed(handler: Any) -> bool:
    """Returns whether a handler of the program overrides `save` without `save_small`, or `restore` without
    `restore_small`. Commits that copy no weights call only the latter."""

    def definer(name: str) -> int:
        kinds = type(handler).__mro__
        return next((at for at, kind in enumerate(kinds) if name in kind.__dict__), len(kinds))

    return any(definer(whole) < definer(f"{whole}_small") for whole in ("save", "restore"))


_schedulers = torch.optim.lr_scheduler
_registry: List[Tuple[Type[Any], Type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (ElasticIterable, SamplerStateHandler),
    (getattr(_schedulers, "LRScheduler", _schedulers._LRScheduler), SchedulerStateHandler),
    (_schedulers.ReduceLROnPlateau, SchedulerStateHandler),
    (getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler), ScalerStateHandler),
]


def get_handler_registry() -> List[Tuple[Type[Any], Type[StateHandler]]]:
    """Returns the list of types and their handlers, which a program may change. The first type that matches a value
    decides."""
    return _registry


def set_handler_registry(registry: List[Tuple[Type[Any], Type[StateHandler]]]) -> None:
    """Replaces the list that `get_handler_registry` returns."""
    global _registry
    _registry = registry


def _handler_of(value: Any) -> Any:
    return next((handler for type_, handler in _registry if isinstance(value, type_)), None)


class _Steps:
    """Counts the steps of an optimizer, because fused optimizers of PyTorch do not change the version of the
    weights."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.count, self.is_in_backward, self.optimizer = 0, False, weakref.ref(optimizer)
        if hasattr(optimizer, "register_step_post_hook"):
            optimizer.register_step_post_hook(self._on_step)

    def _on_step(self, *unused: Any) -> None:
        self.count += 1
        task = getattr(torch._C, "_current_graph_task_id", None)
        self.is_in_backward |= task is not None and task() >= 0


COPY_INTERVAL = 60.0  # about the greatest age in seconds of the full copy of a state without snapshots


class TorchState(ObjectState):
    """Model, optimizer, samplers and other values that training needs, each as an attribute.

    Saves modules, optimizers, learning rate schedulers, GradScalers, ElasticSamplers and ElasticIterables by their
    state_dict, and other keyword arguments as copies. An attribute that is set to another module, optimizer or sampler
    is saved at once. `model` and `optimizer` may be None at first.

    `snapshot`: True: each commit copies the weights and the state of the optimizer. False: a commit copies the other
    values only, and a failure returns to the newest commit of a rank whose weights and optimizer have not changed
    since. Each failure finds such a rank if the program commits after each step, calls no Horovod function between step
    and commit, and changes weights only by `step` of the state's single optimizer. Otherwise all ranks return to a copy
    in host memory, which a commit makes about once a minute, or every commit if commits are rarer; a pause between two
    commits adds to its age. Changes that keep `_version` of a tensor, such as those by `.data`, are not detected. With
    op=Adasum, LBFGS, no or several optimizers, steps inside backward, and with handlers or a `sync` of the program,
    commits still copy the weights, and a warning reports it.
    """

    _handlers: Dict[str, Any]
    _snapshot: bool
    _is_marked = False  # whether the last save copied no weights
    _mark: Optional[Mark] = None  # None: this rank's values are not a commit
    _copy: Tuple[int, Dict[str, Any], float]  # commits, attributes and time of the full copy
    _copies_first = False  # the last save made the full copy, which then belongs to that commit
    _last_commit: float
    _steps: Optional[_Steps] = None
    _warned: Optional[str] = None

    def __init__(self, model: Any = None, optimizer: Any = None, *, snapshot: bool = True, **kwargs: Any) -> None:
        self.__dict__.update(_handlers={}, _snapshot=snapshot)
        plain = {}
        for name, value in {"model": model, "optimizer": optimizer, **kwargs}.items():
            handler = _handler_of(value)
            if handler is not None:
                self._handle(name, handler, value)
            else:
                plain[name] = value
        super().__init__(**plain)
        for name, handler in self._handlers.items():
            self.__dict__[name] = handler.value
        if not self._copies():
            self._save_small()
            self._copy_all()

    def __setattr__(self, name: str, value: Any) -> None:
        handler, saved = _handler_of(value), self.__dict__.get("_saved_state", {})
        if name in self._handlers:
            if handler is None:
                raise ValueError(
                    f"TorchState: {name} is a {type(value).__name__} now; give it another module, optimizer or sampler."
                )
            if type(self._handlers[name]) is handler:
                self._handlers[name].set_value(value)
            else:
                self._handle(name, handler, value)
        elif name in saved and handler is not None:
            del saved[name]
            self._handle(name, handler, value)
        else:
            handler = None
        self.__dict__[name] = value
        if handler is not None and self._is_marked:
            self.save()
            if self._is_marked:
                self._copy_all()

    def save(self) -> None:
        """Keeps a copy of all values in this process's memory; without `snapshot`, only of values that steps of the
        optimizer do not change."""
        _ops.check_results()
        if self._copies():
            self._mark, self._is_marked = None, False
            for handler in self._handlers.values():
                handler.save()
            super().save()
        else:
            self._copies_first = not self._is_marked
            self._save_small()
            if self._copies_first:  # no full copy exists yet, or it has other values
                self._copy_all()

    def restore(self) -> None:
        """Sets all values to the last saved copy. Without `snapshot`, weights and optimizer stay if they have not
        changed since; otherwise all values come from the last full copy."""
        if self._is_marked and self._mark is not None and self._mark.holds(self._marked()):
            for handler in self._handlers.values():
                handler.restore_small()
            super().restore()
            return
        for handler in self._handlers.values():
            handler.restore()
        if self._is_marked:
            self._commits, attributes, _ = self._copy
            self._saved_state = copy.deepcopy(attributes)
        super().restore()
        if self._is_marked:
            self._save_small()

    def sync(self) -> None:
        """Sets all values to those of rank 0, or of `source_rank()`. All ranks must call it."""
        if self._is_marked and source_rank() != rank():
            # A failure in the following calls returns to this copy, because the mark does not detect received values.
            self._save_small()
            self._copy_all()
            self._mark = None
        for handler in self._handlers.values():
            if hasattr(handler, "receive") and is_ours(handler):
                handler.receive()
            else:
                handler.sync()
        super().sync()
        self.save()  # last: a failure before this line returns to values of one commit

    def reset(self) -> None:
        """Divides the remaining samples among the current ranks."""
        for handler in self._handlers.values():
            if isinstance(handler.value, (ElasticSampler, ElasticIterable)):
                handler.value.reset()

    def _handle(self, name: str, kind: Any, value: Any) -> None:
        saves_at_once = isinstance(kind, type) and issubclass(kind, _ByStateDict)
        handler = kind.__new__(kind, value) if saves_at_once else kind(value)
        if saves_at_once:
            handler._is_on_host = not self._snapshot  # set before __init__, which makes the first copy
            handler.__init__(value)
        self._handlers[name] = handler

    def _copies(self) -> bool:
        """Returns whether a commit copies the weights."""
        if self._snapshot:
            return True
        optimizers = [
            handler.value for handler in self._handlers.values() if isinstance(handler.value, torch.optim.Optimizer)
        ]
        why = None
        if len(optimizers) != 1:
            why = f"the state has {len(optimizers) or 'no'} optimizers, and one is needed"
        elif isinstance(optimizers[0], torch.optim.LBFGS):
            why = "a step of LBFGS changes weights between its reductions"
        elif getattr(optimizers[0], "op", None) == Adasum:
            why = "a step with op=Adasum changes weights before its reductions"
        elif not follows_source(self):
            why = "a handler or the `sync` of the state is the program's own, and takes the values of rank 0"
        elif any(map(_is_bypassed, self._handlers.values())):
            why = "a handler of the program's own has a `save` or `restore`, and no `save_small` or `restore_small`"
        else:
            if self._steps is None or self._steps.optimizer() is not optimizers[0]:
                self._steps = _Steps(optimizers[0])
            if self._steps.is_in_backward:
                why = "the optimizer steps inside backward"
        if why is not None and why != self._warned:
            self._warned = why
            warnings.warn(
                f"TorchState: commits copy the weights in spite of snapshot=False, because {why}.", stacklevel=3
            )
        return why is not None

    def _marked(self) -> List[Any]:
        return [self._steps and self._steps.count, [handler.marked() for handler in self._handlers.values()]]

    def _save_small(self) -> None:
        for handler in self._handlers.values():
            handler.save_small()
        super().save()
        self._mark, self._is_marked = Mark(self._marked()), True

    def _copy_all(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        self._last_commit = time.monotonic()
        self._copy = self._commits, copy.deepcopy(self._saved_state), self._last_commit

    def _on_commit(self) -> None:
        if self._is_marked:
            now = time.monotonic()
            if self._copies_first:
                self._copy = self._commits, *self._copy[1:]
            # Assume that the time until the next commit equals the time since the last commit.
            if 2 * now - self._last_commit - self._copy[2] >= COPY_INTERVAL:
                self._copy_all()
            self._last_commit = now

    def _on_sync(self) -> None:
        if self._is_marked:  # the full copy belongs to an older commit, or to another state
            self._copy_all()

    def _on_interrupt(self) -> None:
        if self._is_marked:
            self.save()
