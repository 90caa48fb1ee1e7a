"""DistributedOptimizer: an optimizer whose step uses gradients averaged over all ranks."""

from __future__ import annotations

import contextlib
import itertools
import warnings
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from horovod import _basics, _ops
from horovod._ops import Adasum, Average, Kind
from horovod.exceptions import HorovodUnimplementedError
from horovod.process_sets import ProcessSet, global_process_set, id_of
from horovod.torch import _submission
from horovod.torch._allreduce import allreduce_async_, grouped_allreduce_async_
from horovod.torch._rows import sparse_allreduce_async
from horovod.torch.compression import Compression

_unnamed = itertools.count()


class _Bucket:
    """Parameters whose gradients travel as one request, and the request in flight.

    Lives through many steps; `in_flight` is None between synchronize and the next backward.
    """

    def __init__(self, name: str, params: Sequence[torch.Tensor], passes: int) -> None:
        self.name = name
        self.params = list(params)
        self.in_flight: Union[None, int, Callable[[], None]] = None  # or a handle
        self.rearm(passes)

    def rearm(self, passes: int) -> None:
        """Makes ready for a step of so many backward passes."""
        self.passes_left = [passes] * len(self.params)
        self.incomplete = len(self.params)  # parameters whose gradient is not yet complete


class _Exchange:
    """The gradients' way over the ranks: hooks, buckets and requests of one optimizer."""

    def __init__(self, compression: Any, backward_passes_per_step: int, op: int,
                 predivide_factor: float, sparse_as_dense: bool, process_set: ProcessSet) -> None:
        self.compression = compression
        self.passes = backward_passes_per_step
        self.op = op
        self.prescale = 1.0 / predivide_factor
        self.postscale = predivide_factor
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        # In a world of one there is nobody to exchange with.
        self.active = process_set.included() and _basics.size() > 1
        self.buckets: List[_Bucket] = []
        self.in_flight = 0  # buckets that are
        self._hooked: List[Any] = []  # a graph node with a hook lives as long as somebody holds it

    def add(self, name: str, params: Sequence[torch.Tensor]) -> None:
        """Makes `params` a bucket; those that require no gradient are left out."""
        params = [param for param in params if param.requires_grad]
        if not self.active or not params:
            return
        self.buckets.append(_Bucket(name, params, self.passes))
        for index, param in enumerate(params):
            self._hook(param, len(self.buckets) - 1, index)

    def _hook(self, param: torch.Tensor, bucket: int, index: int) -> None:
        # A hook outlives an optimizer that was thrown away, and must not act for it.
        weak_self = weakref.ref(self)

        def hook(*unused: Any) -> None:
            exchange = weak_self()
            if exchange is not None:
                exchange._on_gradient(exchange.buckets[bucket], index)

        if hasattr(param, "register_post_accumulate_grad_hook"):
            param.register_post_accumulate_grad_hook(hook)
            return
        # Before torch 2.1 the node that adds to .grad is reached through a function of the
        # parameter.
        node = param.expand_as(param).grad_fn.next_functions[0][0]
        node.register_hook(hook)
        self._hooked.append(node)

    def _on_gradient(self, bucket: _Bucket, index: int) -> None:
        # Runs once per parameter and step, between two operations of backward: every line counts.
        left = bucket.passes_left[index] - 1
        if left < 0 or bucket.in_flight is not None:
            raise AssertionError(
                f"Gradient {bucket.name} was computed more than backward_passes_per_step="
                f"{self.passes} times before step() or synchronize(); raise "
                "backward_passes_per_step to add up gradients of more passes."
            )
        bucket.passes_left[index] = left
        if left == 0:
            bucket.incomplete -= 1
            if bucket.incomplete == 0:
                self._start(bucket)

    def _start(self, bucket: _Bucket) -> None:
        if len(bucket.params) == 1 and self.compression is Compression.none:
            handle = _submission.plain(
                Kind.ALLREDUCE, "allreduce.", bucket.name, bucket.params[0].grad, self.op, 0,
                id_of(self.process_set), self.prescale, self.postscale,
            )
            bucket.in_flight = handle
        if bucket.in_flight is None:
            bucket.in_flight = self._start_any(bucket)
        self.in_flight += 1

    def _start_any(self, bucket: _Bucket) -> Callable[[], None]:
        """Starts a bucket of whatever gradients; returns what waits for it."""
        for param in bucket.params:
            if param.grad is None:
                param.grad = torch.zeros_like(param)
            elif param.grad.is_sparse and self.sparse_as_dense:
                param.grad = param.grad.to_dense()
        if len(bucket.params) == 1 and bucket.params[0].grad.is_sparse:
            return self._start_sparse(bucket, bucket.params[0])
        grads = [param.grad for param in bucket.params]
        compressed, contexts = zip(*(self.compression.compress(grad) for grad in grads))
        submit, what = grouped_allreduce_async_, list(compressed)
        if len(grads) == 1:
            submit, what = allreduce_async_, compressed[0]
        handle = submit(
            what, name=bucket.name, op=self.op, prescale_factor=self.prescale,
            postscale_factor=self.postscale, process_set=self.process_set,
        )

        def finish() -> None:
            _ops.run(handle)
            with torch.no_grad():
                for grad, reduced, context in zip(grads, compressed, contexts):
                    if reduced is not grad:
                        grad.copy_(self.compression.decompress(reduced, context))

        return finish

    def _start_sparse(self, bucket: _Bucket, param: torch.Tensor) -> Callable[[], None]:
        wait = sparse_allreduce_async(param.grad, bucket.name, self.op, self.process_set)

        def finish() -> None:
            param.grad = wait()

        return finish

    def set_passes(self, passes: int) -> None:
        """Sets how many backward passes make a step."""
        self.passes = passes
        for bucket in self.buckets:
            bucket.rearm(passes)

    def has_work(self) -> bool:
        """Whether a request is in flight."""
        return self.in_flight > 0

    def synchronize(self) -> None:
        """Starts what no hook has started, then waits for everything."""
        if self.in_flight < len(self.buckets):
            for bucket in self.buckets:
                # Frozen since, and on all ranks: nothing to exchange, and nothing to step.
                if bucket.in_flight is None and any(
                        param.requires_grad or param.grad is not None for param in bucket.params):
                    self._start(bucket)
        self.drain()

    def drain(self) -> None:
        """Waits for what is in flight and makes ready for the next step, also after a failure."""
        failure = None
        self.in_flight = 0
        for bucket in self.buckets:
            work, bucket.in_flight = bucket.in_flight, None
            bucket.rearm(self.passes)
            try:
                if type(work) is int:
                    _ops.run(work)
                elif work is not None:
                    work()
            except Exception as error:  # the others must be waited for all the same
                failure = failure or error
        if failure is not None:
            raise failure


class _DistributedMixin:
    """Comes before the user's optimizer class in the classes that DistributedOptimizer makes."""

    _exchange: _Exchange
    _synchronized = False
    _should_synchronize = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sets how many backward passes add up to one step, from the next step on."""
        _check_passes(passes)
        self._exchange.set_passes(passes)

    def synchronize(self) -> None:
        """Waits until all gradients are reduced: call it to clip or inspect them before `step`.

        Use `skip_synchronize` around the `step` that follows. All ranks must call it; parameters
        without a gradient take part with zeros.
        """
        self._exchange.synchronize()
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """A `step` inside the `with` block takes the gradients as they are."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Waits for the reduced gradients, then does the optimizer's own step.

        All ranks must call it. With a `closure`, the gradients of each of its evaluations are
        reduced; all ranks must evaluate it equally often.
        """
        if not self._should_synchronize:
            self._synchronized = False
            return super().step() if closure is None else super().step(closure)
        if closure is not None:
            if self._exchange.has_work():
                self._exchange.drain()
            return super().step(self._synchronized_closure(closure))
        if self._synchronized:
            warnings.warn(
                "optimizer.step() after optimizer.synchronize() reduces the gradients a second "
                "time; write 'with optimizer.skip_synchronize(): optimizer.step()'.",
                stacklevel=2,
            )
        self.synchronize()
        self._synchronized = False
        return super().step()

    def _synchronized_closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def evaluate() -> Any:
            loss = closure()
            self._exchange.synchronize()
            return loss

        return evaluate

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's own, with its arguments (`set_to_none`)."""
        if self._exchange.has_work():
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() and before "
                "optimizer.step() or optimizer.synchronize(): gradients that are being reduced "
                "would be lost."
            )
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """As the optimizer's own; waits for reductions in flight and forgets them."""
        self._exchange.drain()
        self._synchronized = False
        super().load_state_dict(state_dict)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """As the optimizer's own; all ranks must add the same parameters."""
        super().add_param_group(param_group)
        group = len(self.param_groups) - 1
        prefix = f"added.{next(_unnamed)}.{group}"
        for index, param in enumerate(self.param_groups[-1]["params"]):
            self._exchange.add(f"{prefix}.{index}", [param])


def _check_passes(passes: int) -> None:
    if passes <= 0:
        raise ValueError(f"backward_passes_per_step must be 1 or more, not {passes}.")


def _names(optimizer: torch.optim.Optimizer,
           named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]]) -> Dict[int, str]:
    """The name of each of the optimizer's parameters, by id."""
    if named_parameters is None:
        # The number keeps two optimizers apart whose gradients are in flight together.
        prefix = f"noname.{next(_unnamed)}"
        return {
            id(param): f"{prefix}.{group_index}.{index}"
            for group_index, group in enumerate(optimizer.param_groups)
            for index, param in enumerate(group["params"])
        }
    named = list(named_parameters)
    if any(not isinstance(entry, tuple) or len(entry) != 2 for entry in named):
        raise ValueError(
            "named_parameters must be a sequence of (name, parameter) tuples, as "
            "model.named_parameters() makes."
        )
    seen: set = set()
    twice = sorted({name for name, _ in named if name in seen or seen.add(name)})
    if twice:
        raise ValueError(
            f"named_parameters has more than one parameter named {', '.join(twice)}; names must "
            "be unique."
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


def _buckets(params: List[torch.Tensor], names: Dict[int, str],
             groups: Union[None, int, Sequence[Sequence[torch.Tensor]]]
             ) -> Iterator[Tuple[str, List[torch.Tensor]]]:
    """Divides the parameters: each its own bucket, `groups` of equal length, or as listed."""
    if groups is None or groups == 0:
        listed: List[Sequence[torch.Tensor]] = []
    elif isinstance(groups, int):
        if groups < 0:
            raise ValueError(f"groups must be 0 or more, or lists of parameters, not {groups}.")
        chosen = [param for param in params if param.requires_grad]
        length = max(1, -(-len(chosen) // groups))
        listed = [chosen[at : at + length] for at in range(0, len(chosen), length)]
    else:
        listed = [group for group in groups if len(group)]
        if any(not isinstance(group, (list, tuple)) for group in listed):
            raise ValueError("groups must be a number, or a list of lists of parameters.")
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
) -> torch.optim.Optimizer:
    """Returns an optimizer like `optimizer` whose `step` uses gradients reduced over all ranks.

    The result is an instance of a subclass of the optimizer's class and shares its options and
    state. Each gradient is reduced as soon as backward has made it, while backward goes on.

    All ranks must wrap the same parameters in the same order and call `step` equally often.

    Args:
      named_parameters: `model.named_parameters()`, for names in messages and timelines.
      compression: what gradients are sent as: `Compression.none`, `.fp16` or `.bf16`.
      backward_passes_per_step: gradients of so many passes are added up (not averaged) before
        they are reduced.
      op: Average or Sum (Min, Max and Product are reduced as they are named).
      gradient_predivide_factor: f splits the average in two: divided by f before the sum and
        by size / f after it; with Average only.
      groups: a number of groups into which the gradients are divided, or lists of parameters;
        a group is reduced as one request. `num_groups` is the deprecated way to say the number.
      sparse_as_dense: sparse gradients are made dense before they are reduced.

    Raises ValueError for arguments that contradict each other.
    """
    _check_passes(backward_passes_per_step)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor works with op=hvd.Average only.")
    if gradient_predivide_factor <= 0:
        raise ValueError(
            f"gradient_predivide_factor must be positive, not {gradient_predivide_factor}."
        )
    if num_groups:
        warnings.warn("The argument num_groups is deprecated; use groups.", DeprecationWarning,
                      stacklevel=2)
        groups = num_groups if groups is None else groups
    id_of(process_set)
    if op == Adasum and _basics.size() > 1:
        raise HorovodUnimplementedError(
            "This release has no DistributedOptimizer with op=hvd.Adasum; use hvd.Average."
        )
    exchange = _Exchange(compression, backward_passes_per_step, op, gradient_predivide_factor,
                         sparse_as_dense, process_set)
    names = _names(optimizer, named_parameters)
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for name, bucket in _buckets(params, names, groups):
        exchange.add(name, bucket)

    base = type(optimizer)
    made = type(base.__name__, (_DistributedMixin, base), {"__module__": __name__})
    distributed = made.__new__(made)
    # Learning rate schedulers put a `step` into the instance, which would go past ours.
    distributed.__dict__.update(
        {key: value for key, value in optimizer.__dict__.items() if key != "step"}
    )
    distributed._exchange = exchange
    return distributed
