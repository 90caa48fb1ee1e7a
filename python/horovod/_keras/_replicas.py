"""Compares variables of Keras and TensorFlow between ranks (horovod._replicas): one check for each list of variables
whose gradients are reduced together."""

from __future__ import annotations

import collections
import re
import weakref
from typing import Any, Callable, Collection, Dict, Iterable, List, Optional, Sequence, Set, Tuple

import numpy

from horovod import _basics, _ops
from horovod._ops import Adasum
from horovod._replicas import Check, Options
from horovod.numpy._replicas import ArrayModel
from horovod.process_sets import ProcessSet, id_of

_OPTIONS = ("learning_rate", "momentum", "weight_decay", "rho", "beta_1", "beta_2")
_OPTIONS_OF_TENSORFLOW_1 = ("_learning_rate", "_lr", "_momentum", "_beta1", "_beta2")
_MOST_CHECKS = 1000  # per process: programs that choose variables anew in each step get no further checks
_SHAPE = " of shape "


class VariableModel(ArrayModel):
    """The variables of a list, and the options of an optimizer, to which it refers weakly. `reduced`: the indices of
    variables that have gradients."""

    def __init__(self, variables: Sequence[Any], reduced: Sequence[int], optimizer: Any) -> None:
        self._names = names_of(variables)
        self._order = [f"{self._names[i]}{_SHAPE}{list(variables[i].shape)}" for i in reduced]
        self._optimizer: Any = (lambda: None) if optimizer is None else weakref.ref(optimizer)
        self.requests: Sequence[str] = ()  # their names, if they come from names of tensors
        self.values: Sequence[numpy.ndarray] = ()  # set while the check runs

    def order(self) -> List[List[str]]:
        return [self._order, list(self.requests)]

    def parameters(self) -> List[Tuple[str, numpy.ndarray]]:
        return list(zip(self._names, self.values))

    def options(self) -> Options:
        optimizer = self._optimizer()
        return [] if optimizer is None else _options_of(optimizer)


class VariableCheck(Check):
    """The check of one list of variables. `label`: the part of the messages' names that is equal on all ranks,
    whichever optimizer or function runs first."""

    remedy = "Give fit() hvd.callbacks.BroadcastGlobalVariablesCallback(0) when the model's checkpoint is loaded"
    remedy_of_options = "broadcast the optimizer's variables after a checkpoint is loaded"

    def __init__(self, model: VariableModel, process_set: ProcessSet, label: str) -> None:
        self._label, self.variables = label, model
        self.frozen: List[Any] = []  # variables that are compared too
        super().__init__(model, process_set)

    def _send_order(self) -> None:
        process_set = id_of(self._process_set)
        self._order_name = self._order_name or _ops.auto_name(f"allreduce.replicas.order{self._label}", process_set)
        self._name = self._name or _ops.auto_name(f"allreduce.replicas{self._label}", process_set)
        super()._send_order()

    def _are_alike(self, lists: List[List[str]]) -> bool:
        """Returns whether shapes and requests are equal and only names of variables differ, for example because one
        rank has made another model before. Otherwise, if the variables differ, removes the requests from the lists."""
        matched = [[name.rpartition(_SHAPE)[2] for name in names] for names in lists]
        variables = [[name for name in names if _SHAPE in name] for names in lists]
        have_names = all(sorted(each) == sorted(variables[0]) for each in variables)
        if all(each == matched[0] for each in matched) and not have_names:
            return True
        if any(each != variables[0] for each in variables):
            lists[:] = variables
        return False


class Checks:
    """The checks of a process, by optimizer, process set and variables. `make` takes the arguments of VariableCheck."""

    def __init__(self, make: Callable[..., Any], is_comparable: Callable[[Any], bool]) -> None:
        self._make, self._is_comparable = make, is_comparable
        self._found: Dict[tuple, Any] = {}
        self._made = 0
        _ops.also_forget(self._restart)

    def _restart(self, process_set: int) -> None:
        if process_set == -1:  # new processes of an elastic job have no checks
            self._made = 0

    def find(
        self,
        reduction: Any,
        variables: Sequence[Any],
        reduced: Collection[int],
        local: Sequence[bool],
        optimizer: Any,
        label: Callable[[], str],
    ) -> Tuple[Optional[Any], List[Any]]:
        """Returns the check of the variables that are not `local`, and the variables to compare. Returns None if no
        check is possible. `reduced`: the indices of variables whose gradients the ranks reduce."""
        if not (reduced and variables and needs_check(reduction)):
            return None, []
        chosen = list(variables)
        check = None if any(local) else self._found.get(_key(reduction, chosen, optimizer))
        if check is None:
            compared = [i for i, each in enumerate(chosen) if not local[i] and self._is_comparable(each)]
            chosen = [chosen[i] for i in compared]
            places = [place for place, i in enumerate(compared) if i in reduced]
            check = self._found.get(_key(reduction, chosen, optimizer)) or self._add(
                reduction, chosen, places, optimizer, label
            )
        return check, chosen if check is None else [*chosen, *check.frozen]

    def _add(
        self, reduction: Any, variables: Sequence[Any], reduced: Sequence[int], optimizer: Any, label: Callable[[], str]
    ) -> Optional[VariableCheck]:
        if not reduced or self._made == _MOST_CHECKS:
            return None
        self._made += 1
        key = _key(reduction, variables, optimizer)
        frozen = [each for each in _frozen(optimizer) if self._is_comparable(each)]
        model = VariableModel([*variables, *frozen], reduced, optimizer)
        check: VariableCheck = self._make(model, reduction.process_set, label())
        check.frozen = frozen
        if optimizer is None:
            check.subject = "hvd.DistributedGradientTape"
        self._found[key] = check
        for owner in variables if optimizer is None else [*variables, optimizer]:
            # After an object's end, another object may get its id.
            weakref.finalize(owner, self._found.pop, key, None).atexit = False
        return check


def _key(reduction: Any, variables: Sequence[Any], optimizer: Any) -> tuple:
    return (id(optimizer), id_of(reduction.process_set), *map(id, variables))


def needs_check(reduction: Any) -> bool:
    process_set = reduction.process_set
    return (
        reduction.op != Adasum
        and process_set.included()
        and (process_set.size() > 1 or _basics.is_elastic())  # an elastic job may add ranks later
    )


_models: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # weak references, by optimizer


def watch(model: Any, optimizer: Any) -> None:
    """Lets the optimizer's check compare the frozen weights of this model too."""
    _models[optimizer] = weakref.ref(model)


def _frozen(optimizer: Any) -> List[Any]:
    """Returns the weights of frozen layers. Omits weights that never have a gradient, such as statistics."""
    model = _models[optimizer]() if optimizer is not None and optimizer in _models else None
    if model is None:
        return []
    trained = {id(each) for each in model.trainable_weights}
    found: Dict[int, Any] = {}
    for layer in model._flatten_layers():
        for name in ("_trainable_weights", "_trainable_variables"):  # of Keras 2 and 3
            found.update((id(each), each) for each in layer.__dict__.get(name) or ())
    return [each for key, each in found.items() if key not in trained]


def names_of(variables: Iterable[Any]) -> List[str]:
    """Returns names that are equal on all ranks, even if one rank has made another model and its layers have other
    numbers. Replaces each number in a name by its index among the numbers in use."""
    texts = [re.sub(r":\d+$", "", getattr(each, "path", each.name)) for each in variables]
    paths = [[_split(part) for part in text.split("/")] for text in texts]
    numbers: Dict[str, Set[int]] = collections.defaultdict(set)
    for base, number in (part for path in paths for part in path):
        numbers[base].add(number)
    names = []
    for path in paths:
        places = [(base, sorted(numbers[base]).index(number)) for base, number in path]
        names.append("/".join(f"{base}_{place}" if place else base for base, place in places))
    counts: Dict[str, int] = collections.Counter()
    for index, name in enumerate(names):
        counts[name] += 1
        if counts[name] > 1:
            names[index] = f"{name} ({counts[name]})"
    return names


def _split(part: str) -> Tuple[str, int]:
    base, separator, number = part.rpartition("_")
    return (base, int(number)) if separator and number.isdigit() else (part, -1)


def _options_of(optimizer: Any) -> Options:
    """Returns the options of an optimizer of Keras or of TensorFlow 1, as far as they are numbers."""
    while True:  # an optimizer of Keras may contain another one
        inner = getattr(optimizer, "inner_optimizer", None)
        if inner is None:
            break
        optimizer = inner
    found: Options = [("the class", type(optimizer).__name__)]
    for name in _OPTIONS + _OPTIONS_OF_TENSORFLOW_1:
        schedule = getattr(optimizer, f"_{name}", None)
        if schedule is not None and hasattr(schedule, "get_config"):
            # A graph may count a step before or after this point, so the current rate may differ between ranks.
            found += [(f"{key} of {name}", each) for key, each in _numbers_in(schedule.get_config())]
        else:
            found += [(name.lstrip("_"), each) for each in _number(getattr(optimizer, name, None))]
    return found


def _numbers_in(config: Dict[str, Any]) -> Iterable[Tuple[str, float]]:
    for key, value in sorted(config.items()):
        for each in value if isinstance(value, (list, tuple)) else [value]:
            yield from ((key, number) for number in _number(each))


def _number(value: Any) -> List[float]:
    """Returns a list with the number, or an empty list if the value is not a number."""
    try:
        return [float(numpy.asarray(value))]
    except (TypeError, ValueError, RuntimeError):  # for example, a variable of a graph
        return []
