"""DistributedOptimizer: an optimizer whose step uses gradients averaged over all ranks."""

from __future__ import annotations

import collections
import contextlib
import inspect
import itertools
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from horovod._compression import check_choices, check_predivision
from horovod._ops import Adasum as Adasum, Average, Sum as Sum, steps_travel
from horovod.common.util import split_list as split_list
from horovod.exceptions import HorovodInternalError
from horovod.process_sets import ProcessSet, global_process_set, id_of
from horovod.torch import _closures, _torch_calls
from horovod.torch._adasum import AdasumMixin
from horovod.torch._attributes import Attributes, Options
from horovod.torch._buckets import Interrupted
from horovod.torch._reducer import GradientReducer
from horovod.torch._step import IDLE, INTERRUPTED, READ, REDUCED, STEPPED, State
from horovod.torch.compression import Compression
from horovod.torch.functions import broadcast_object as broadcast_object
from horovod.torch.mpi_ops import (
    allreduce_async_ as allreduce_async_,
    grouped_allreduce_async_ as grouped_allreduce_async_,
    rocm_built as rocm_built,
    size as size,
    sparse_allreduce_async as sparse_allreduce_async,
    synchronize as synchronize,
)

# The class that the original makes for op=Adasum.
_DistributedAdasumOptimizer = AdasumMixin

_unnamed = itertools.count()
_profiles = torch.autograd._profiler_enabled
_drops_by_default = inspect.signature(torch.optim.Optimizer.zero_grad).parameters["set_to_none"].default is True


class _DistributedOptimizer(Attributes):
    """The mixin before the user's optimizer class in the classes that DistributedOptimizer makes."""

    _reducer: GradientReducer
    _should_synchronize = True
    _has_stepped = False
    _drops_gradients = False  # True: zero_grad drops them at less cost than the base class

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sets the number of backward passes per step, from the next step on."""
        _check_passes(passes)
        self._reducer.set_passes(passes)
        self._options = self._options._replace(backward_passes_per_step=passes)

    def synchronize(self) -> None:
        """Waits until all gradients are reduced: call it to clip or inspect them before `step`.

        Use `skip_synchronize` around the `step` that follows. All ranks must call it; parameters
        without a gradient take part with zeros.
        """
        if self._reducer.step.state is not READ:
            self._reducer.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """A `step` inside the `with` block uses the gradients without another reduction."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Optional[Callable[[], Any]] = None, **more: Any) -> Any:
        """Waits for the reduced gradients, then does the optimizer's own step.

        All ranks must call it. Before GradScaler or a function of torch.nn.utils unscales or clips gradients, they are
        already reduced. Raises AssertionError on all ranks if the program has written a gradient in another way since
        backward. With a `closure`, the gradients and the loss of each of its evaluations are reduced, and the optimizer
        gets the mean loss (with op=Sum the sum) in the form of the closure's number or tensor; all ranks must evaluate
        it equally often. Gradients that exist before the first evaluation are reduced too, except with op=Sum and
        Product. If a signal handler raises in the first evaluation, or during the reduction of its gradients, the next
        call continues the interrupted one.
        """
        if not self._should_synchronize:
            self._end_step(STEPPED)
            return self._own_step(super().step, *(() if closure is None else (closure,)), **more)
        if closure is not None:
            self._reducer.closure.begin(self._reducer)
            return self._own_step(super().step, self._synchronized_closure(closure), **more)
        self._reducer.closure.loss = None
        if self._reducer.step.reduced() is REDUCED:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() after "
                "optimizer.synchronize() reduces the gradients a second time; write 'with "
                "optimizer.skip_synchronize(): optimizer.step()'.",
                stacklevel=2,
            )
        if self._reducer.step.state is not READ:
            self._reducer.synchronize()
        self._end_step(STEPPED)
        return self._own_step(super().step, **more)

    def _own_step(self, step: Callable[..., Any], *closure: Any, **more: Any) -> Any:
        result = step(*closure, **more)
        if self._reducer.replicas.is_open:
            self._reducer.replicas.note_step()
        self._reducer.record_step()
        return result

    def _end_step(self, state: State) -> None:
        self._reducer.end_step(state)
        if state is STEPPED and not self._has_stepped:
            self._has_stepped = True
            self._reducer.warn_about_graphs(type(self).__name__)

    def _synchronized_closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        reducer, is_first = self._reducer, True

        def evaluate() -> Any:
            nonlocal is_first
            loss, reducer.closure.loss = reducer.closure.loss, None
            is_over = loss is not None and reducer.step.state is not INTERRUPTED  # in an interrupted call
            try:
                if loss is None:
                    loss = self._shared(closure())
                if not is_over:
                    if reducer.step.state is not READ:  # the closure has not clipped the gradients
                        reducer.synchronize()
                    self._end_step(STEPPED)
                result = loss()
            except BaseException as error:
                raised = error.error if isinstance(error, Interrupted) else None
                if is_first and not isinstance(error, HorovodInternalError):
                    if loss is None:
                        reducer.closure.left = [bucket for bucket in reducer.buckets if bucket.works]
                    elif raised is not None or reducer.step.state is INTERRUPTED:
                        reducer.closure.loss = loss
                if raised is None:
                    raise
            else:
                is_first = False
                return result
            raise raised

        return evaluate

    def _shared(self, loss: Any) -> Callable[[], Any]:
        """Returns a function that returns the loss reduced over all ranks, because the next step of LBFGS or of a line
        search depends on the loss."""
        return _closures.share_loss(loss, self._reducer) if self._reducer.buckets else lambda: loss

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Calls the optimizer's `zero_grad` with its arguments (`set_to_none`)."""
        if self._reducer.has_work():
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() and before "
                "optimizer.step() or optimizer.synchronize(): gradients that are being reduced "
                "would be lost. If another model's loss has made them, or no step follows, "
                "call optimizer.synchronize() first, on all ranks."
            )
        self._end_step(IDLE)
        if self._drops_gradients and not args and not kwargs and not _profiles():
            for group in self.param_groups:
                for param in group["params"]:
                    param.grad = None
            return
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Calls the optimizer's method; first waits for reductions in flight and forgets them."""
        self._forget_step()
        super().load_state_dict(state_dict)

    def _forget_step(self) -> None:
        self._reducer.drain()
        self._reducer.closure.abandon()
        self._end_step(IDLE)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Calls the optimizer's method; all ranks must add the same parameters."""
        super().add_param_group(param_group)
        group = len(self.param_groups) - 1
        prefix = f"added.{next(_unnamed)}.{group}"
        params = self.param_groups[-1]["params"]
        self._reducer.add([(f"{prefix}.{index}", [param]) for index, param in enumerate(params)])


def _check_passes(passes: int) -> None:
    if not hasattr(passes, "__index__") or passes <= 0:
        raise ValueError(f"backward_passes_per_step must be a whole number above 0, not {passes!r}.")


def _names(
    optimizer: torch.optim.Optimizer, named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]]
) -> Dict[int, str]:
    """Returns the names of the optimizer's parameters by id."""
    if named_parameters is None:
        # The number distinguishes the requests of two optimizers that are in flight together.
        prefix = f"noname.{next(_unnamed)}"
        return {
            id(param): f"{prefix}.{group_index}.{index}"
            for group_index, group in enumerate(optimizer.param_groups)
            for index, param in enumerate(group["params"])
        }
    named: List[Any] = list(named_parameters) if hasattr(named_parameters, "__iter__") else [named_parameters]
    if any(not isinstance(entry, tuple) or len(entry) != 2 for entry in named):
        raise ValueError(
            "named_parameters must be a sequence of (name, parameter) tuples, as model.named_parameters() makes."
        )
    counts = collections.Counter(name for name, _ in named)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise ValueError(
            f"named_parameters has more than one parameter named {', '.join(twice)}; names must be unique."
        )
    names = {id(param): name for name, param in named}
    params = [param for group in optimizer.param_groups for param in group["params"]]
    missing = sum(id(param) not in names for param in params)
    if missing:
        raise ValueError(
            f"named_parameters lacks {missing} of the {len(params)} parameters of the optimizer; "
            "name all of them, or none."
        )
    return names


def _buckets(
    params: List[torch.Tensor], names: Dict[int, str], groups: Union[None, int, Sequence[Sequence[torch.Tensor]]]
) -> Iterator[Tuple[str, List[torch.Tensor]]]:
    """Divides the parameters into buckets: one per parameter, `groups` of equal length, or as listed."""
    if groups is None or groups == 0:
        listed: List[Sequence[torch.Tensor]] = []
    elif isinstance(groups, int):
        if groups < 0:
            raise ValueError(f"groups must be 0 or more, or lists of parameters, not {groups}.")
        chosen = [param for param in params if param.requires_grad]
        length = max(1, -(-len(chosen) // groups))
        listed = [chosen[at : at + length] for at in range(0, len(chosen), length)]
    else:
        if not isinstance(groups, (list, tuple)) or any(not isinstance(group, (list, tuple)) for group in groups):
            raise ValueError("groups must be a number, or a list of lists of parameters.")
        listed = [group for group in groups if len(group)]
        ids = [id(param) for group in listed for param in group]
        if len(set(ids)) != len(ids):
            raise ValueError("groups has a parameter twice; each can be in one group only.")
        if any(key not in names for key in ids):
            raise ValueError("groups has a parameter that is not one of the optimizer's.")
    for group in listed:
        yield names[id(group[0])], list(group)
    grouped = {id(param) for group in listed for param in group}
    for param in params:
        if id(param) not in grouped:
            yield names[id(param)], [param]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]] = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Union[None, int, Sequence[Sequence[torch.Tensor]]] = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns an optimizer like `optimizer` whose `step` uses gradients reduced over all ranks.

    The result is an instance of a subclass of the optimizer's class, with `synchronize`, `skip_synchronize` and
    `set_backward_passes_per_step`, and shares the optimizer's options and state. The reduction of a large gradient
    starts as soon as backward has computed it. One request reduces small gradients after backward; its name contains
    the first gradient's name and the number of the others. Gradients that persist between steps
    (`zero_grad(set_to_none=False)`) move into memory that the ranks of a host share: read `param.grad` in each step
    instead of keeping a view of it. A pickle is an optimizer of the class of `optimizer`, with its state. A deep copy
    is distributed too.

    All ranks must wrap the same parameters in the same order and call `step` equally often. Clipping by torch.nn.utils
    and GradScaler get reduced gradients; `step` refuses other changes of gradients since backward on all ranks, unless
    they happen between `synchronize` and `skip_synchronize`. The gradients of unfrozen parameters are reduced from then
    on. See docs/data-and-checkpoints.md.

    Args:
      named_parameters: `model.named_parameters()`, for names in messages and timelines.
      compression: the type of gradients in transfer: `Compression.none`, `.fp16` or `.bf16`.
      backward_passes_per_step: the number of passes whose gradients are summed (not averaged)
        before the reduction.
      op: Average or Sum; Min, Max and Product work too. With Adasum each rank takes its own
        step, and the ranks combine the changes of each parameter separately.
      gradient_predivide_factor: f splits the division of an average in two: by f before the sum and
        by size / f after it. Only with Average.
      groups: the number of groups into which the gradients are divided, or lists of parameters.
        One request reduces a group. `num_groups` is the deprecated name for the number.
      sparse_as_dense: reduces sparse gradients as dense gradients; they are sparse again before the step.

    Raises ValueError for arguments that contradict each other.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(
            f"DistributedOptimizer takes an optimizer of torch.optim, not {optimizer!r}, a {type(optimizer).__name__}."
        )
    if isinstance(optimizer, (_DistributedOptimizer, AdasumMixin)):
        raise ValueError("DistributedOptimizer was given an optimizer that is distributed already.")
    check_choices(op, compression)
    _check_passes(backward_passes_per_step)
    check_predivision(gradient_predivide_factor, op)
    if num_groups:
        warnings.warn("The argument num_groups is deprecated; use groups.", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    id_of(process_set)
    names = _names(optimizer, named_parameters)
    _torch_calls.install()

    def again(plain: Any, named: Any, passes: int, found: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        lists = [[found(param) for param in group] for group in groups] if isinstance(groups, (list, tuple)) else groups
        return DistributedOptimizer(
            plain, named, compression, passes, op, gradient_predivide_factor, 0, lists, sparse_as_dense, process_set
        )

    options = Options(
        compression, backward_passes_per_step, op, gradient_predivide_factor, sparse_as_dense, process_set
    )
    if steps_travel(op, process_set):
        combined = _derive(optimizer, AdasumMixin, names, again, options)
        combined.compare_replicas()
        return combined
    reducer = GradientReducer(
        compression, backward_passes_per_step, op, gradient_predivide_factor, sparse_as_dense, process_set
    )
    params = [param for group in optimizer.param_groups for param in group["params"]]
    reducer.names.update({id(param): names[id(param)] for param in params})
    reducer.add(list(_buckets(params, names, groups)))

    distributed = _derive(optimizer, _DistributedOptimizer, names, again, options)
    distributed._reducer = reducer
    reducer.model.watch(distributed)
    distributed._drops_gradients = _drops_by_default and type(optimizer).zero_grad is torch.optim.Optimizer.zero_grad
    return distributed


def _derive(
    optimizer: torch.optim.Optimizer, mixin: type, names: Dict[int, str], again: Callable[..., Any], options: Options
) -> Any:
    """Returns an optimizer with the options and state of this one, and the mixin before its class."""
    base = type(optimizer)
    made: Any = type(base.__name__, (mixin, base), {"__module__": __name__, "_base": base})
    derived = made.__new__(made)
    # A learning rate scheduler sets a `step` on the instance, which would bypass the `step` of the mixin.
    derived.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key != "step"})
    derived._names, derived._again, derived._options = names, again, options
    if "step" in optimizer.__dict__:  # schedulers count the steps; the derived optimizer makes them
        optimizer._opt_called, optimizer._step_count = True, 1
    return derived
