"""Reduces the gradients of one optimizer over the ranks: hooks, buckets and requests."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import torch

from horovod import _basics, _ops
from horovod._ops import Adasum, Average, Max, Min
from horovod.process_sets import ProcessSet
from horovod.torch import _ddp, _gradient_bucket, _torch_calls
from horovod.torch._buckets import Bucket, Interrupted, PackedBucket, Pending, wait
from horovod.torch._closures import ClosureStep
from horovod.torch._gradient_states import SteppedGradients, is_zero
from horovod.torch._notice import Notice
from horovod.torch._requests import Requests
from horovod.torch._step import IDLE, IN_FLIGHT, INTERRUPTED, PASS, READ, READY, REDUCED, STEPPED, State, Step
from horovod.torch._replicas import ReducerModel, ReplicaCheck
from horovod.torch.compression import Compression

_SEVERAL = -1  # a value of _recorder that stands for several threads


def _forget(process_set: int) -> None:
    for reducer in _torch_calls.watchers() if process_set == -1 else []:
        reducer.forget()


def _checks_copies() -> bool:
    return os.environ.get("HOROVOD_TORCH_CHECK_GRADIENTS", "0").strip().lower() in ("1", "true", "yes", "on")


_ops.also_forget(_forget)


class GradientReducer:
    """Reduces the gradients of the added parameters during the backward pass."""

    def __init__(
        self,
        compression: Any,
        backward_passes_per_step: int,
        op: int,
        predivide_factor: float,
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        self.compression = compression
        self.passes = backward_passes_per_step
        self.op = op
        self.process_set = process_set
        # A single rank reduces nothing. An elastic job may add ranks later.
        self.active = process_set.included() and (_basics.size() > 1 or _basics.is_elastic())
        self.buckets: List[Bucket] = []
        self.step = Step()
        self.closure = ClosureStep()
        self._failure: Optional[Exception] = None  # the error of an earlier bucket of this step
        # This list keeps graph nodes with hooks alive. The shape is that of the parameter when the hook was added.
        self._hooked: List[Tuple[Any, torch.Tensor, torch.Size]] = []
        self._hooks: List[Any] = []  # handles that remove hooks
        self._added: List[Tuple[str, List[torch.Tensor]]] = []
        self.names: Dict[int, str] = {}  # names of the added parameters, by id
        self._frozen: List[torch.Tensor] = []  # added parameters that have no bucket yet
        self._thread = threading.get_ident()  # the thread that made this reducer, or that last ended a step
        # The thread whose backward pass is being recorded; _SEVERAL if passes of several threads may add to the
        # gradients of this step at once.
        self._recorder: Optional[int] = None
        self._notice = Notice()
        self._requests = Requests(
            compression, op, predivide_factor, sparse_as_dense, process_set, self._notice, self.names
        )
        self._copies = _checks_copies()
        self.model = ReducerModel(self)
        self.replicas = ReplicaCheck(self.model, process_set)
        _ddp.watch(self)
        _torch_calls.watch(self)

    def add(self, named: Sequence[Tuple[str, Sequence[torch.Tensor]]]) -> None:
        """Makes a bucket of each (name, params), and packs small single parameters into one. Frozen parameters get a
        bucket in the first step in which they require a gradient."""
        if not self.active:
            return
        for name, params in named:
            for index, param in enumerate(params):
                self.names.setdefault(id(param), name if index == 0 else f"{name}.{index}")
        self._added += [(name, list(params)) for name, params in named]
        self._make_buckets(named)

    def _make_buckets_again(self) -> None:
        """Makes new buckets for the current parameters. All ranks must do this at the same step, because the buckets'
        names change."""
        for hook in self._hooks:
            hook.remove()
        self.buckets, self._hooked, self._hooks, self._frozen = [], [], [], []
        self._make_buckets(self._added)

    def _make_buckets(self, named: Sequence[Tuple[str, Sequence[torch.Tensor]]]) -> None:
        _ddp.warn_about(param for _, params in named for param in params if _ddp.owns(param))
        named = [(name, [param for param in params if not _ddp.owns(param)]) for name, params in named]
        alone = {id(params[0]): (name, params[0]) for name, params in named if len(params) == 1}
        packed: set = set()
        if self.compression is Compression.none and self.op != Adasum:
            for members in _gradient_bucket.choose([param for _, param in alone.values()]):
                packed.update(map(id, members))
                self._add(PackedBucket([alone[id(param)] for param in members], self.passes, self._copies))
        for name, params in named:
            self._frozen += [param for param in params if not param.requires_grad]
            params = [param for param in params if param.requires_grad and id(param) not in packed]
            if params:
                self._add(Bucket(name, params, self.passes, self._copies))

    def has(self, bucket: Bucket) -> bool:
        """Returns whether this reducer also reduces a parameter of the bucket."""
        ids = {id(param) for param in bucket.params}
        return any(id(param) in ids for mine in self.buckets for param in mine.params)

    def released(self) -> None:
        """Drops the parameters that a module of DistributedDataParallel has taken over."""
        if any(_ddp.owns(param) for bucket in self.buckets for param in bucket.params):
            self.drain()
            self._make_buckets_again()

    def _add(self, bucket: Bucket) -> None:
        self.buckets.append(bucket)
        for index, param in enumerate(bucket.hooked()):
            self._hook(param, len(self.buckets) - 1, index)

    def _hook(self, param: torch.Tensor, bucket: int, index: int) -> None:
        # The hook outlives a deleted optimizer, and then must do nothing.
        weak_self = weakref.ref(self)

        def hook(*unused: Any) -> None:
            reducer = weak_self()
            if reducer is not None:
                reducer._on_gradient(reducer.buckets[bucket], index)

        if hasattr(param, "register_post_accumulate_grad_hook"):
            self._hooks.append(param.register_post_accumulate_grad_hook(hook))
            return
        # Before torch 2.1, the node that adds to .grad is accessible only through an operation on the parameter.
        with torch.enable_grad():
            node = param.expand_as(param).grad_fn.next_functions[0][0]
        self._hooks.append(node.register_hook(hook))
        self._hooked.append((node, param, param.shape))

    def _on_gradient(self, bucket: Bucket, index: int) -> None:
        # This function runs for each hooked parameter in each backward pass, so every line costs time.
        step = self.step
        if step.state < PASS:
            step.rise(PASS)
        left = bucket.passes_left[index] - 1
        if left < 0 or bucket.works:
            if step.state is INTERRUPTED:
                raise AssertionError(
                    f"Gradient {bucket.name} was computed anew while gradients of an "
                    "interrupted step() or synchronize() are being reduced: call that again first, "
                    "which goes on where it was."
                )
            self._refuse_another_optimizer(bucket, "was computed once more before step() or synchronize()")
            raise AssertionError(
                f"Gradient {bucket.name} was computed more than backward_passes_per_step="
                f"{self.passes} times before step() or synchronize(); raise "
                "backward_passes_per_step to add up gradients of more passes. A weight that two checkpoints with "
                "use_reentrant=True share is computed once for each of them."
            )
        bucket.passes_left[index] = left
        if left == 0:
            bucket.incomplete -= 1
            if bucket.incomplete == 0:
                if isinstance(bucket, PackedBucket) or self._copies:
                    step.rise(READY)
                elif bucket not in self.closure.kept:
                    try:
                        self._start(bucket)
                    except Exception as error:
                        self._refuse_another_optimizer(bucket, "is being reduced already", error)
                        raise
                    bucket.states.record()

    def _refuse_another_optimizer(self, bucket: Bucket, what: str, cause: Optional[BaseException] = None) -> None:
        if any(other is not self and other.has(bucket) for other in _torch_calls.watchers()):
            raise AssertionError(
                f"Gradient {bucket.name} {what}; "
                "another hvd.DistributedOptimizer is there that has the same parameters: call "
                "its step(), or let go of it and of what refers to it, such as a scheduler."
            ) from cause

    def _start(self, bucket: Bucket) -> None:
        self._run(bucket, self._requests.start(bucket, self.passes))

    def _run(self, bucket: Bucket, works: List[Pending]) -> None:
        bucket.works = works
        self.step.rise(IN_FLIGHT)

    def set_passes(self, passes: int) -> None:
        """Sets the number of backward passes per step."""
        self.passes = passes
        for bucket in self.buckets:
            bucket.rearm(passes)

    def forget(self) -> None:
        """Resets the state after a shutdown of Horovod: no work is in flight. The ranks must agree on their buckets
        again, because some ranks may have failed within a step."""
        self.step, self._failure = Step(), None
        self.closure.forget()
        self._requests.sparse.forget()
        self._mark_step()
        self._notice.forget()
        for bucket in self.buckets:
            bucket.works, bucket.is_agreed = [], False
            bucket.states.forget()
            bucket.rearm(self.passes)

    def has_work(self) -> bool:
        """Returns whether complete gradients of a step are in flight or wait for their start."""
        return self.step.state >= READY

    def has_gradients(self) -> bool:
        """Returns whether unused gradients exist from as many passes as make a step."""
        if any(0 < left < self.passes for bucket in self.buckets for left in bucket.passes_left):
            return False
        if self.step.state >= PASS:  # the program may have dropped the gradients of the pass
            self._forget_passes_of_several()
            written = (bucket.states.first_written() for bucket in self.buckets)
            return all(index is None for index in written) or not self._are_dropped()
        if self.step.state in (READ, REDUCED):
            return False
        stepped = self.step.stepped
        is_of_the_step = self.step.state is STEPPED and not (stepped is not None and stepped.are_replaced())
        return not is_of_the_step and not self._are_dropped()

    def begin_pass(self, thread: int) -> None:
        """Before a backward pass, records which gradients the program has written. If passes run in two threads at
        once, records nothing until the step, because each pass may belong to this model or to another."""
        if self._recorder == _SEVERAL or (thread != self._thread and self.step.reduced() in (READ, REDUCED)):
            return
        if self._recorder not in (None, thread) or self._steps_others(thread):
            self._recorder = _SEVERAL  # reads nothing: another thread may be changing the gradients
            return
        self._recorder = thread
        for bucket in self.buckets:
            if not bucket.works:
                bucket.states.begin_pass()

    def _steps_others(self, thread: int) -> bool:
        """Returns whether this thread steps other optimizers, and another thread steps this one. PyTorch has no lock
        for `.grad`, so only the thread that changes it may read it."""
        return thread != self._thread and any(each._thread == thread for each in _torch_calls.watchers())

    def _forget_passes_of_several(self) -> None:
        if self._recorder == _SEVERAL:
            for bucket in self.buckets:
                if not bucket.works:
                    bucket.states.forget()

    def end_pass(self, thread: int) -> None:
        """Records the gradients that are not submitted, at the end of a backward pass."""
        if self._recorder != thread:
            return
        self._recorder = None
        for bucket in self.buckets:
            if not bucket.works and bucket.states.end_pass():
                self.step.rise(PASS)
        self.step.has_passed = True

    def _are_dropped(self) -> bool:
        """Returns whether the program has dropped all gradients of the step, or set them to zero. Even if this rank's
        pass has added no gradients since, other ranks may have some and reduce them."""
        grads = [param.grad for bucket in self.buckets for param in bucket.params]
        return all(grad is None or is_zero(grad) for grad in grads)

    def fail_pass(self, thread: int) -> None:
        """Forgets the records, because the failed pass may have left gradients in any state."""
        if self._recorder != thread:
            return
        self._recorder = None
        if self.step.state is STEPPED:
            self.step.end(IDLE)
        for bucket in self.buckets:
            if not bucket.works:
                bucket.states.forget()

    def explain(self, error: BaseException) -> None:
        """Raises an error that names the parameter, if a pass has failed because a parameter's shape has changed."""
        for _, param, shape in self._hooked:
            if param.shape != shape:
                raise RuntimeError(
                    f"The shape of {self.names[id(param)]} has changed from {list(shape)} to {list(param.shape)} since "
                    "hvd.DistributedOptimizer was given it, which PyTorch supports from version 2.1 on: call "
                    "hvd.DistributedOptimizer after the change."
                ) from error

    def owned(self, ids: Set[int]) -> Set[int]:
        """Returns which of these ids belong to parameters that this reducer reduces."""
        return {id(param) for bucket in self.buckets for param in bucket.params if id(param) in ids}

    def owns_gradients(self, ids: Set[int]) -> bool:
        """Returns whether this reducer reduces a gradient with one of these ids."""
        grads = (param.grad for bucket in self.buckets for param in bucket.params)
        return any(grad is not None and id(grad) in ids for grad in grads)

    def reduce_early(self) -> None:
        """Reduces the gradients for a function that reads them before the step. After the step the gradients are
        already reduced, so a single rank may read them."""
        step = self.step
        if step.state is STEPPED and not self._are_of_the_step():
            step.end(IDLE)
        if step.state is STEPPED:
            step.has_read_none = self._are_dropped()
        elif step.state not in (READ, REDUCED):
            self.synchronize(READ)

    def _are_of_the_step(self) -> bool:
        """Returns whether the gradients are those of the last step."""
        stepped = self.step.stepped
        if stepped is not None and stepped.are_replaced():
            return False
        if stepped is not None and stepped.are_written_uncounted():
            warnings.warn(
                "Gradients were written after step() in a way that PyTorch does not count, as by param.grad.data "
                "or NumPy: without HOROVOD_TORCH_CHECK_GRADIENTS, a function that clips takes them for those of "
                "the step; call optimizer.zero_grad() before the write.",
                stacklevel=5,
            )
            return False
        return not (self.step.has_passed and self._are_dropped())  # reads values, and waits for a GPU

    def has_read_none(self) -> bool:
        """Returns whether a function that clips has found no gradients after the step, and this rank still has none:
        only the ranks with new gradients would clip them."""
        return self.step.has_read_none and self._are_dropped()

    def end_step(self, state: State) -> None:
        """Ends the step. `state`: IDLE if the step is abandoned; STEPPED if the current gradients belong to the
        step."""
        self.step.end(state)
        self._mark_step()

    def _mark_step(self) -> None:
        self._thread = threading.get_ident()
        if self._recorder == _SEVERAL:
            self._forget_passes_of_several()
            self._recorder = None

    def warn_about_graphs(self, optimizer: str) -> None:
        """Warns about an optimizer that may differentiate gradients: their graphs belong to the local loss."""
        grads: List[Any] = [param.grad for bucket in self.buckets for param in bucket.params]
        if any(grad is not None and grad.requires_grad for grad in grads):
            warnings.warn(
                f"The gradients that {optimizer} gets have a graph (create_graph=True). An optimizer that "
                "differentiates them, such as AdaHessian or SophiaH, computes second derivatives of the loss of its "
                "own rank, and the weights of the ranks diverge: take an optimizer that reads .grad alone.",
                stacklevel=4,
            )

    def record_step(self) -> None:
        """Records the gradients after the optimizer's own step, which may have written them. The program may assign new
        gradients without a backward pass."""
        if self.step.state is STEPPED and self.buckets:
            params = [param for bucket in self.buckets for param in bucket.params]
            self.step.stepped = SteppedGradients(params, self._copies)

    def synchronize(self, end: State = REDUCED) -> None:
        """Starts the buckets that no hook has started, then waits for all buckets. `end`: READ or REDUCED."""
        self._forget_passes_of_several()
        self._thread, self._recorder, self.closure.left = threading.get_ident(), None, None
        step = self.step
        if self.replicas.is_open and self.buckets and step.state is not INTERRUPTED:
            self.replicas.begin()
        step.rise(PASS)
        if step.reduced() is READ and self.op not in (Average, Min, Max):
            self._refuse_a_second_sum()
        if step.state is not INTERRUPTED:
            self._notice.find(self)
        if len(self.buckets) != 1 or not self._run_alone(self.buckets[0]):
            self._reduce()
        if self._notice.is_sent():
            self._share_notice()
        step.to(end)

    def _count(self) -> None:
        """Counts a reduction that all ranks run, which decides when the replicas are compared."""
        replicas = self.replicas
        replicas.count += 1
        if replicas.count == replicas.next_count:
            replicas.note_reduction()

    def _refuse_a_second_sum(self) -> None:
        raise AssertionError(
            "A backward pass has added to gradients that GradScaler or a function that clips has read, "
            f"and so reduced, before: with this op, {next(iter(self.names.values()))} and others would "
            "be multiplied. Call it once in each step, after the last backward pass, or call "
            "optimizer.zero_grad() before the pass."
        )

    def _reduce(self) -> None:
        if self.step.state is not INTERRUPTED:
            self._start_all()
            if self.buckets:
                self._count()
        self.drain()
        self.closure.restore()
        self._requests.sparse.make_sparse(self._wanted)

    def _start_all(self) -> None:
        """Starts the buckets that no hook has started."""
        carrier = self._notice.choose_carrier(self)
        for bucket in self.buckets:
            # If no gradient of a bucket is wanted, all ranks have frozen its parameters.
            if not bucket.works and bucket is not carrier and bucket not in self.closure.kept and bucket.is_wanted():
                self._start(bucket)
        self._notice.send(self)
        if carrier is not None:
            self._start(carrier)

    def _wanted(self) -> Dict[str, torch.Tensor]:
        return {self.names[id(param)]: param for bucket in self.buckets for param in bucket.wanted()}

    def is_needed(self) -> bool:
        """Returns whether some parameter needs a reduction, now or after it is unfrozen."""
        return bool(self.buckets or self._frozen)

    def unfrozen(self) -> List[torch.Tensor]:
        """Returns the parameters that now require a gradient and have no bucket."""
        if not self._frozen:
            return []
        return [param for param in self._frozen if param.requires_grad and not _ddp.owns(param)]

    def _share_notice(self) -> None:
        """Raises on all ranks if a rank has found a gradient that the program wrote; otherwise makes buckets for the
        parameters that all ranks have unfrozen or changed, and reduces their gradients."""
        names = self._notice.share(self)
        if not names:
            return
        self._make_buckets_again()
        for bucket in self.buckets:
            params = [param for param in bucket.params if self.names[id(param)] in names]
            if params:
                alone = (Bucket(self.names[id(param)], [param], self.passes) for param in params)
                self._run(bucket, [self._requests.start_any(one) for one in alone])
        self.drain()

    def _run_alone(self, bucket: Bucket) -> bool:
        """Reduces the gradients of this bucket in one native call, if the ranks have reduced it before and all its
        gradients are usable. Returns False otherwise."""
        if not isinstance(bucket, PackedBucket) or not bucket.is_agreed or bucket.works:
            return False
        if self._requests.sparse.are_apart() or self._notice.choose_carrier(self) is not bucket:
            return False
        self._notice.write()
        bucket.rearm(self.passes)
        if self.step.state is READY:
            self.step.to(PASS)
        try:
            is_reduced = self._requests.run(bucket)
        except BaseException:
            if bucket.works:
                self._count()
                self._note_interruption()
            raise
        if is_reduced:
            self._count()
        return is_reduced

    def _note_interruption(self) -> None:
        self.step.to(INTERRUPTED)
        for bucket in self.buckets:
            bucket.rearm(0)  # so that the next backward pass detects the interruption

    def drain(self) -> None:
        """Waits for the work in flight and prepares for the next step, also after a failure. If a signal handler raises
        meanwhile, a second call completes the interrupted one.
        """
        raised: Optional[BaseException] = None
        try:
            if self.replicas.is_open:
                self.replicas.read_order()
            for bucket in self.buckets:
                self._finish(bucket)
            self._wait(self._notice.works)
        except BaseException as error:
            if self.step.state >= PASS:
                self._note_interruption()
            if not isinstance(error, Interrupted):
                raise
            raised = error.error
        if raised is not None:
            raise raised
        if self.step.state >= READY:
            self.step.to(PASS)
        failure, self._failure = self._failure, None
        if failure is not None:
            self.closure.left, self.closure.kept = None, {}
            raise failure

    def _wait(self, works: List[Pending]) -> None:
        while works:
            try:
                if isinstance(works[0], int):
                    wait(works[0])
                else:
                    works[0]()
            except Exception as error:  # wait for the other works before raising the error
                self._failure = self._failure or error
            del works[0]

    def _finish(self, bucket: Bucket) -> None:
        if bucket.works:
            self._wait(bucket.works)
            if self._failure is None:
                bucket.is_agreed = True
        bucket.states.forget()
        bucket.rearm(self.passes)
