"""Training: an optimizer and a Gluon trainer over all ranks, and the broadcast of initial parameters."""

from __future__ import annotations

import functools
import types
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Set

import mxnet

from horovod import _ops, _replicas
from horovod._compression import check_choices, check_predivision
from horovod._ops import Average
from horovod._redirect import redirect
from horovod.mxnet import _arrays, _engine
from horovod.mxnet._collectives import allreduce_async, broadcast_async
from horovod.mxnet._replicas import ReplicaCheck, TrainerModel, UpdateCheck
from horovod.mxnet.compression import Compression
from horovod.process_sets import ProcessSet, global_process_set, id_of


def _groups(items: List[Any], count: int) -> List[List[Any]]:
    """Returns the items one by one, or in `count` groups of about equal length."""
    if not hasattr(count, "__index__") or count < 0:
        raise ValueError(f"num_groups must be a whole number, 0 or more, not {count!r}.")
    length = max(1, -(-len(items) // count)) if count else 1
    return [items[at : at + length] for at in range(0, len(items), length)]


def _average(named: List[Any], num_groups: int, factor: float, process_set: ProcessSet) -> None:
    """Replaces the arrays of the (name, array) pairs by their averages over all ranks, once the arrays
    are computed. Does not wait."""
    handles = []
    for group in _groups(named, num_groups):
        name, arrays = group[0][0], [array for _, array in group]
        for array in arrays:
            _arrays.check(array, name)

        def start(module: Any, name: str = name, arrays: List[Any] = arrays) -> int:
            return allreduce_async(
                arrays,
                True,
                name,
                Average,
                1.0 / factor,
                factor,
                process_set,
                name if len(arrays) > 1 else None,
                module,
            )

        if _engine.can_order(arrays):
            kind = "grouped_allreduce" if len(arrays) > 1 else "allreduce"
            _engine.reduce(arrays, functools.partial(start, _engine.Computed()), f"{id_of(process_set)}.{kind}.{name}")
        else:
            _engine.wait_all()  # two works of one name must not be submitted at once
            handles.append(start(_arrays))
    _ops.run_all(handles)


class DistributedOptimizer(mxnet.optimizer.Optimizer):
    """Averages gradients over all ranks before the user's optimizer uses them.

    For `Module` and other users of mxnet.optimizer; for Gluon use `DistributedTrainer`. All ranks must update the same
    weights in the same order. An update returns at once, as in `DistributedTrainer`. Reading or setting an attribute
    reaches the user's optimizer.
    """

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """`gradient_predivide_factor`: f splits the division of an average in two: by f before the sum and by size / f
        after it. `num_groups`: the number of requests for gradients that are updated together. Raises ValueError for an
        object that is not an optimizer, and for an invalid factor or number."""
        if not isinstance(optimizer, mxnet.optimizer.Optimizer):
            raise ValueError(
                "DistributedOptimizer takes an mxnet.optimizer.Optimizer, such as "
                f"mx.optimizer.create('sgd'), not {optimizer!r}, a "
                f"{type(optimizer).__name__}."
            )
        check_predivision(gradient_predivide_factor, Average)
        _groups([], num_groups)
        id_of(process_set)
        self._optimizer, self._gradient_predivide_factor = optimizer, gradient_predivide_factor
        self._num_groups, self._process_set = num_groups, process_set

    def __getattr__(self, name: str) -> Any:
        if name == "_optimizer":  # during unpickling
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Trainers and modules set rescale_grad, param_dict and idx2name, which the user's optimizer uses.
        optimizer = self.__dict__.get("_optimizer")
        if optimizer is not None and name not in self.__dict__ and name in vars(optimizer):
            setattr(optimizer, name, value)
        else:
            super().__setattr__(name, value)

    def __getstate__(self) -> Dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_replicas"}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)

    def create_state(self, index: Any, weight: Any) -> Any:
        """Calls the optimizer's method."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """Calls the optimizer's method."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Averages the gradients in place, then calls the optimizer's `update`. All ranks must call it."""
        self._reduce(index, weight, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Averages as `update` does, then calls the optimizer's method."""
        self._reduce(index, weight, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        """Calls the optimizer's method."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Dict[Any, float]) -> None:
        """Calls the optimizer's method."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Dict[Any, float]) -> None:
        """Calls the optimizer's method."""
        self._optimizer.set_wd_mult(args_wd_mult)

    def _reduce(self, index: Any, weight: Any, grad: Any) -> None:
        if not self._process_set.included() or self._process_set.size() == 1:
            return
        indices, weights, grads = (
            (index, weight, grad) if isinstance(index, (list, tuple)) else ([index], [weight], [grad])
        )
        if "_replicas" not in self.__dict__:
            self._replicas = UpdateCheck(self, self._process_set)
        self._replicas.before_update(indices, weights)
        _average(
            [(f"gradient.{number}", array) for number, array in zip(indices, grads)],
            self._num_groups,
            self._gradient_predivide_factor,
            self._process_set,
        )


# Stored as an attribute of the function, so that the trainers survive when this module is imported again.
_trainers: weakref.WeakSet = vars(mxnet.gluon.utils.clip_global_norm).setdefault("_hvd_trainers", weakref.WeakSet())


@functools.lru_cache(maxsize=None)
def _redirect_once() -> None:
    redirect(mxnet.gluon.utils.clip_global_norm, _clip)


def _clip(original: Callable[..., Any], arrays: Any, *args: Any, **kwargs: Any) -> Any:
    """Replaces `clip_global_norm`: raises an error if the ranks have not reduced the gradients yet."""
    ids = {id(array) for array in arrays}
    for trainer in list(_trainers):
        trainer._check_reduced(ids)
    return original(arrays, *args, **kwargs)


class DistributedTrainer(mxnet.gluon.Trainer):
    """A Gluon trainer whose `step` uses gradients averaged over all ranks.

    All ranks must make the trainer with the same parameters in the same order, and call `step` (or `allreduce_grads`
    and `update`) equally often. `step` returns at once: each gradient travels as soon as MXNet has computed it. After a
    failure, such as the death of a rank, reading weights or dependent values raises MXNetError, and the next `step`
    raises HorovodInternalError.

    To change gradients, call `allreduce_grads`, then change them, then call `update`: `gluon.utils.clip_global_norm`
    raises AssertionError for unreduced gradients.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Optional[Dict[str, Any]] = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: Optional[str] = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """`params`, `optimizer`, `optimizer_params`: as for mxnet.gluon.Trainer. `compression`: the type of gradients
        in transfer, `Compression.none` or `.fp16`. `prefix`: begins the gradients' names, for two trainers in one
        program. For other arguments see `DistributedOptimizer`. Raises ValueError for invalid arguments."""
        if not isinstance(optimizer, (str, mxnet.optimizer.Optimizer)):
            raise ValueError(
                "DistributedTrainer takes an mxnet.optimizer.Optimizer or the name of one, "
                f"not {optimizer!r}, a {type(optimizer).__name__}."
            )
        check_choices(Average, compression)
        check_predivision(gradient_predivide_factor, Average)
        _groups([], num_groups)
        id_of(process_set)
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "hvd.DistributedTrainer averages gradients itself; give it the optimizer "
                "that hvd.DistributedOptimizer was given.",
                stacklevel=2,
            )
            optimizer = optimizer._optimizer
        super().__init__(params, optimizer, optimizer_params=optimizer_params, kvstore=None)
        self._hvd = (compression, gradient_predivide_factor, prefix or "", num_groups, process_set)
        self._replicas = ReplicaCheck(TrainerModel(self), process_set)
        self._is_reduced = False  # whether gradients were reduced since the last update
        _redirect_once()
        _trainers.add(self)

    def _check_reduced(self, ids: Set[int]) -> None:
        process_set = self._hvd[-1]
        if self._is_reduced or not process_set.included() or process_set.size() == 1:
            return
        for param in self._params:
            if param._grad is not None and any(id(grad) in ids for grad in param._grad):
                raise AssertionError(
                    f"clip_global_norm was given the gradient of {param.name}, which "
                    "hvd.DistributedTrainer has not reduced yet, so each rank would clip in another way: "
                    "call trainer.allreduce_grads() before, and trainer.update(batch_size) in place of "
                    "trainer.step(batch_size) after it."
                )

    def _update(self, ignore_stale_grad: bool = False) -> None:
        self._is_reduced = False
        super()._update(ignore_stale_grad)
        if self._replicas.is_open:
            self._replicas.note_step()

    def _allreduce_grads(self) -> None:
        self._is_reduced = True
        compression, factor, prefix, num_groups, process_set = self._hvd
        if not process_set.included() or process_set.size() == 1:
            return
        self._replicas.before_reduction()
        named, restored = [], []
        for index, param in enumerate(self._params):
            if param.grad_req == "null":
                continue
            grad = param.list_grad()[0]
            sent, context = compression.compress(grad)
            named.append((f"{prefix}gradient.{index}", sent))
            if sent is not grad:
                restored.append((grad, sent, context))
        _average(named, num_groups, factor, process_set)
        for grad, sent, context in restored:
            grad[:] = compression.decompress(sent, context)


def _once_initialized(param: Any, then: Callable[[Any], None]) -> None:
    """Makes the parameter, whose shape is unknown, call `then(data)` when it gets its values."""
    plain = param._init_impl

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(*args, **kwargs)
        param._init_impl = plain
        then(self.data())

    param._init_impl = types.MethodType(init, param)


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: Optional[str] = None) -> None:
    """Overwrites parameters with those of the rank `root_rank`; all ranks must call it.

    `params`: a dict of arrays, or Gluon's `collect_params()`, with the same names and shapes on all ranks; parameters
    whose shapes are not known yet are broadcast when they get values. `prefix`: begins the parameters' names, for two
    models in one program. Raises ValueError if `params` is of another type.
    """
    if not hasattr(params, "items"):
        raise ValueError(
            f"broadcast_parameters takes a dict of arrays or Gluon's collect_params(), not a {type(params).__name__}."
        )
    handles = []
    for name, entry in sorted(params.items()):
        full = f"{prefix or ''}parameters.{name}"
        if not isinstance(entry, mxnet.gluon.parameter.Parameter):
            handles.append(broadcast_async(entry, True, root_rank, full, global_process_set))
            continue
        try:
            arrays = entry.list_data()
        except mxnet.gluon.parameter.DeferredInitializationError:

            def receive(data: Any, full: str = full) -> None:
                _ops.run(broadcast_async(data, True, root_rank, full, global_process_set))

            _once_initialized(entry, receive)
            continue
        handles.append(broadcast_async(arrays[0], True, root_rank, full, global_process_set))
    _ops.run_all(handles)
    _replicas.note_broadcast()
