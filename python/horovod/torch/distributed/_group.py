"""A group of torch.distributed over the runtime.

The n-th collective of a group is one operation on all ranks, whatever it is: the runtime compares kind, dtype, count,
root and reduction, and a difference is an error on every rank.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import itertools
import os
import sys
import time
import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

import torch
import torch.distributed as dist

from horovod import _identity, _ops
from horovod._ops import Kind
from horovod.exceptions import HorovodArgumentError
from horovod.torch import _tensors
from horovod.torch.distributed import _backward, _calls, _messages, _monitored, _open_works, _order
from horovod.torch.distributed import _postponed, _profiling, _ranks, _reductions, _tensor_bytes, _tensor_memory
from horovod.torch.distributed._calls import Op
from horovod.torch.distributed._reductions import Reduction
from horovod.torch.distributed._work import Compared, Completed, Several, Work

Tensors = Sequence[torch.Tensor]

_ONE = _reductions.ONE
_AllreduceOptions = dist.AllreduceOptions
_TELLS_WHO_WAITS = hasattr(_AllreduceOptions(), "asyncOp")
_NO_TIME = datetime.timedelta(0)
# How long the end of a program waits for calls that have started, and that of a group for sends.
_SECONDS_AT_EXIT = 30
_CPU = torch.device("cpu")
# The parts are those of valid tensors of one shape.
_UNCHECKED = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}


class _Options:
    """The options of a backend, as torch reads and writes them."""

    def __init__(self, timeout: datetime.timedelta) -> None:
        self._timeout = timeout
        self.backend = "horovod"
        self.global_ranks_in_group: List[int] = []
        self.group_name = ""


def _one(tensors: Any, what: str) -> Any:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"horovod: {what} takes one tensor of this rank, and there are {len(tensors)}")
    return tensors[0]


class HorovodProcessGroup(dist.ProcessGroup):
    """This rank's part in a group. Tensors in host memory; other backends may be there for other devices."""

    _backend_name = "horovod"

    def __init__(self, place: _ranks.Place, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, size)
        self._place = place
        self._store = store
        self._my_rank, self._my_size = rank, size
        self._numbers = itertools.count(1)  # of calls, as the runtime counts them
        self._works = _open_works.OpenWorks()  # of collectives
        self._postponed = _postponed.Calls()
        self._is_one_host = _identity.size() == _identity.local_size()
        self._order = _order.of(place.ranks)
        self._seconds = timeout.total_seconds()
        self._options = _Options(timeout)
        self._name, self._description = place.name, "undefined"
        self._devices: Dict[torch.device, Any] = {}
        self._bound: Optional[torch.device] = None
        self._coalesced: Optional[List[Work]] = None
        self._messages = _messages.Messages(place)
        self._barriers = itertools.count()
        self._nothing_to_wait_for = Completed([])
        self._end = weakref.finalize(self, _end, place)
        self._end.atexit = False
        _groups.add(self)
        # The runtime ends later at exit, since it has started before.
        atexit.unregister(_complete_calls)
        atexit.register(_complete_calls, os.getpid())

    # ---- what torch asks about a group ----

    def getBackendName(self) -> str:
        """The name for code in C++, which takes a group of the name gloo for its own class."""
        return "horovod"

    def name(self) -> str:
        """The name of the backend."""
        return self._backend_name

    _get_backend_name = name

    def getRank(self) -> int:
        """The rank of this process in the group."""
        return self._my_rank

    def getSize(self) -> int:
        """The number of ranks."""
        return self._my_size

    rank, size = getRank, getSize

    def getGroupName(self) -> str:
        """torch's name of the group."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """Sets the name."""
        self._name = name

    _set_group_name = setGroupName

    def getGroupDesc(self) -> str:
        """The description of the group."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """Sets the description."""
        self._description = description

    _set_group_desc = setGroupDesc
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    def get_group_store(self) -> Any:
        """torch's store of the group."""
        return self._store

    @property
    def _device_types(self) -> List[torch.device]:
        return [_CPU, *self._devices]

    @property
    def bound_device_id(self) -> Optional[torch.device]:
        """The device to which torch has bound the group."""
        return self._bound

    @bound_device_id.setter
    def bound_device_id(self, device: Optional[torch.device]) -> None:
        """Sets the device."""
        self._bound = device

    def _get_backend(self, device: torch.device) -> Any:
        kind = torch.device(device).type
        if kind == "cpu":
            return self
        return self._other(kind)

    def _other(self, kind: str) -> Any:
        for device, backend in self._devices.items():
            if device.type == kind:
                return backend
        raise RuntimeError(
            f"horovod: the group {self._name} has no backend for tensors on {kind}; create it with "
            f"'cpu:horovod,{kind}:...', such as 'cpu:horovod,cuda:nccl', or move them with .cpu()"
        )

    def _add_backend(self, device: torch.device, kind: Any, backend: Any) -> None:
        self._devices[device] = backend
        self._register_backend(device, kind, backend)

    # A group is its own backend for host memory.
    supports_splitting = supports_coalescing = supports_time_estimate = supports_shrinking = False
    _supports_time_estimate = supports_reconfigure = supports_window = False
    supports_abort_hooks = supports_completion_hooks = False

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Whether `allocate_tensor` has memory that makes collectives faster: on one host."""
        return torch.device(device).type == "cpu" and self._is_one_host

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: Any) -> torch.Tensor:
        """Returns a tensor of `size` elements with any values, in memory that the ranks of the host share: where every
        rank has its input there, they gather and reduce it without copies."""
        if not self.supports_tensor_alloc(device):
            raise RuntimeError(f"horovod: the group {self._name} allocates no tensors on {device}")
        return _tensor_memory.empty(size, dtype)

    @property
    def options(self) -> _Options:
        """The options of the backend for host memory."""
        return self._options

    def _set_default_timeout(self, timeout: datetime.timedelta) -> None:
        self._options._timeout = timeout
        self._seconds = timeout.total_seconds()

    set_timeout = _set_default_timeout

    def _has_hooks(self) -> bool:
        return False

    def get_error(self) -> Any:
        """No error: calls and works raise theirs."""
        return torch._C._distributed_c10d.ErrorType.SUCCESS

    def _wait_for_pending_works(self) -> None:
        for work in self._works.all():
            if not work.is_completed():
                work.wait()

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return int(repr(self._numbers)[len("count(") : -1]) - 1

    def shutdown(self) -> None:
        """Ends the group, and with the default group what it has started. Completes the calls that have started, as
        long as the group's timeout and the job allow."""
        try:
            # torch may end the default group, and thereby the runtime, before the others.
            for group in list(_groups) if self._place.is_default else [self]:
                group.complete_calls(group._seconds)
        finally:
            self._end_all("shutdown")

    def abort(self) -> None:
        """Ends the group as `shutdown` does, and waits for no call."""
        self._end_all("abort")

    def _end_all(self, how: str) -> None:
        """Ends the group, and the backends of other devices by their method of that name."""
        with contextlib.ExitStack() as ends:
            ends.callback(self._end)
            if self._end.alive:
                for backend in self._devices.values():  # before torch 2.5, NCCL's has an underscore
                    end = getattr(backend, how, None) or getattr(backend, f"_{how}", None)
                    if end is not None:
                        ends.callback(end)

    def complete_calls(self, seconds: float) -> None:
        """Waits for the collectives and sends that have started, and raises none of their errors. The program has given
        those up of which a wait has ended."""
        if not self._end.alive:
            return
        self._postponed.start()
        until = time.monotonic() + seconds
        self._complete(self._works.all(), until)
        # A large message is sent once it is received, which may never be.
        self._complete(self._messages.sends(), min(until, time.monotonic() + _SECONDS_AT_EXIT))

    def _complete(self, works: Iterable[Work], until: float) -> None:
        for work in works:
            with contextlib.suppress(Exception):
                if not work._is_given_up:
                    work.complete(max(until - time.monotonic(), 0.001))

    def split_group(self, *args: Any, **kwargs: Any) -> Any:
        """Raises RuntimeError."""
        raise RuntimeError("horovod: a group cannot be split; make groups with dist.new_group")

    splitGroup = merge_remote_group = mergeRemoteGroup = split_group

    # ---- how collectives run ----

    def _time(self, opts: Any) -> float:
        timeout = getattr(opts, "timeout", None)
        if timeout is None or timeout <= _NO_TIME:
            return self._seconds
        seconds: float = timeout.total_seconds()
        return seconds

    def _call(
        self,
        what: str,
        op: Op,
        like: Optional[torch.Tensor],
        elements: int,
        source: Optional[torch.Tensor],
        target: Optional[torch.Tensor],
        outputs: Any,
        opts: Any,
        after: Optional[Callable[[], None]] = None,
        inputs: Any = None,
        **arguments: Any,
    ) -> Work:
        """Calls a collective of the runtime, whose arguments are those of _calls.submit. `after` runs once it is
        complete."""
        if self._postponed.waiting:
            self._postponed.start()
        if self._order is not None:
            source, target, after = self._order.arrange(op, source, target, after, arguments)
        seconds = self._time(opts)
        handle = _calls.submit(self._place.group, op, like, elements, source, target, seconds, **arguments)
        return self._record(next(self._numbers), what, [handle], outputs, opts, after, inputs)

    def _record(
        self,
        number: int,
        what: str,
        handles: List[Any],
        outputs: Any,
        opts: Any,
        after: Optional[Callable[[], None]] = None,
        inputs: Any = None,
    ) -> Work:
        work = Work((what, "as call", number, "of group", self._place.label), handles, outputs, self._time(opts), after)
        return self._note(work, what, outputs if inputs is None else inputs)

    def _note(self, work: Work, what: str, inputs: Any) -> Work:
        self._works.add(work)
        return self._note_running(work, what, inputs)

    def _note_running(self, work: Work, what: str, inputs: Any) -> Work:
        if _profiling.is_on():
            work._event = _profiling.begin(self._backend_name, what, inputs)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _elsewhere(self, tensor: torch.Tensor) -> bool:
        """Whether another backend has the tensor. Raises for a device that no backend has."""
        return not tensor.is_cpu and self._is_of_another(tensor.device)

    def _root(self, opts: Any, what: str) -> int:
        """The root of a call, as a rank of the job."""
        return self._place.rank_of(getattr(opts, "rootRank", 0), f"{what}: the root")

    # ---- collectives ----

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        """torch.distributed.all_reduce."""
        tensor = tensors[0] if tensors.__class__ is list and len(tensors) == 1 else _one(tensors, "all_reduce")
        reduction = _reductions.of(opts.reduceOp if opts.__class__ is _AllreduceOptions else opts)
        if not tensor.is_cpu and self._elsewhere(tensor):
            return super().allreduce(tensors, opts)
        if tensor.layout is not torch.strided:
            return self._sparse_allreduce(tensor, reduction, opts)
        if reduction.fold is not None:
            return self._fold_all(tensor, reduction, opts)
        waits_now = _TELLS_WHO_WAITS and opts.__class__ is _AllreduceOptions and not opts.asyncOp
        if waits_now and reduction.factor is _ONE and not _profiling.is_on():
            done = self._reduce_now(tensor, reduction, opts)
            if done is not None:
                return done
        elif reduction.factor is _ONE and self._coalesced is None and self._is_one_host and _backward.is_caller(2):
            if _tensor_bytes.is_plain(tensor):
                return self._reduce_bucket(tensor, reduction, opts)
        return self._reduce_in_place("all_reduce", [tensor], reduction, opts)

    def _reduce_now(self, tensor: torch.Tensor, reduction: Reduction, opts: Any) -> Optional[Work]:
        """Waits for a call after which torch waits at once, and makes no object for it. None: it is not such a call."""
        seconds = self._time(opts)
        if self._postponed.waiting:
            self._postponed.start()
        try:
            handle = _calls.reduce_now(self._place.group, reduction.op, tensor, seconds)
        except HorovodArgumentError:  # the runtime has refused the call, and does not count it
            raise
        except BaseException:
            next(self._numbers)
            _tensor_memory.forget()
            raise
        if handle is False:
            return None
        number = next(self._numbers)
        if handle is None:
            return self._nothing_to_wait_for
        work = self._record(number, "all_reduce", [handle], [tensor], opts)
        work._complete(seconds, has_waited=True)
        return work

    def _reduce_bucket(self, bucket: torch.Tensor, reduction: Reduction, opts: Any) -> Work:
        """A dense tensor that code in C++ reduces in a backward pass."""
        _reductions.check(bucket, reduction)
        if not self._postponed.may_take(bucket):
            return self._call(
                "all_reduce",
                Op.ALLREDUCE,
                bucket,
                bucket.numel(),
                bucket,
                bucket,
                [bucket],
                opts,
                keep=bucket,
                reduce_op=reduction.op,
            )
        words = ("all_reduce", "as call", next(self._numbers), "of group", self._place.label)
        work = self._postponed.add(words, self._place.group, reduction.op, bucket, self._time(opts))
        return self._note(work, "all_reduce", [bucket])

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        """torch.distributed.all_reduce_coalesced."""
        reduction = _reductions.of(getattr(opts, "reduceOp", None))
        if tensors and self._elsewhere(tensors[0]):
            return super().allreduce_coalesced(tensors, opts)
        if reduction.fold is not None:
            return Several([self._fold_all(tensor, reduction, opts) for tensor in tensors])
        return self._reduce_in_place("all_reduce_coalesced", tensors, reduction, opts)

    def _reduce_in_place(self, what: str, tensors: Tensors, reduction: Reduction, opts: Any) -> Work:
        for tensor in tensors:
            _reductions.check(tensor, reduction)
        if len(tensors) != 1 and not _tensor_bytes.have_one_dtype(tensors):
            return Several([self._reduce_in_place(what, [tensor], reduction, opts) for tensor in tensors])
        dense = _tensors.dense(tensors[0]) if len(tensors) == 1 else _tensor_bytes.flat(tensors)
        dense, reduction = reduction.apply(dense)

        def after() -> None:
            if dense is not tensors[0]:
                _tensor_bytes.spread(dense, tensors)

        return self._call(
            what,
            Op.ALLREDUCE,
            dense,
            dense.numel(),
            dense,
            dense,
            list(tensors),
            opts,
            after,
            keep=tensors,
            tag=_calls.tag_of_sizes(tensors),
            reduce_op=reduction.op,
            factor=reduction.factor,
        )

    def _fold_all(self, tensor: torch.Tensor, reduction: Reduction, opts: Any) -> Work:
        """A reduction that the runtime does not have: each rank gets the inputs of all."""
        _reductions.check(tensor, reduction)
        dense = _tensors.dense(tensor)
        rows = torch.empty((self._my_size, *tensor.shape), dtype=tensor.dtype)

        def after() -> None:
            _tensors.copy(tensor, reduction.reduce(list(rows.unbind(0))))

        return self._call(
            "all_reduce",
            Op.ALLGATHER,
            dense,
            dense.numel(),
            dense,
            rows,
            [tensor],
            opts,
            after,
            keep=tensor,
            tag=reduction.tag,
        )

    def _sparse_allreduce(self, tensor: torch.Tensor, reduction: Reduction, opts: Any) -> Work:
        if reduction.op != _ops.Sum or tensor.layout is not torch.sparse_coo:
            raise RuntimeError("horovod: sparse tensors are reduced by ReduceOp.SUM only, and in the layout sparse_coo")
        if isinstance(reduction.factor, torch.Tensor) and reduction.factor.numel() != 1:
            raise RuntimeError("horovod: the factor of sparse tensors must be one number")
        tensor = tensor.detach() if tensor.requires_grad else tensor
        found = tensor.coalesce()
        indices, values = found.indices().t().contiguous(), found.values().contiguous()
        if reduction.factor is not _ONE:
            values = reduction.scale(values)
        parts: List[Any] = []

        def take(handle: int) -> None:
            for which, like in enumerate((indices, values)):
                output = _ops.output(handle, which)
                part = torch.empty((output.shape[0], *like.shape[1:]), dtype=like.dtype)
                _tensor_bytes.fill(part, output.address)
                parts.append(part)

        def after() -> None:
            total = torch.sparse_coo_tensor(parts[0].t(), parts[1], tensor.shape, **_UNCHECKED).coalesce()
            with torch.no_grad():
                tensor.copy_(total)

        # The ranks have different numbers of values, which they negotiate by a name, once a barrier has compared the
        # calls. An empty tensor has the shape of the sparse ones, which the ranks compare.
        def gather() -> Any:
            return _ops.submit(
                Kind.ALLGATHER,
                f"torch.{self._name}.sparse.{number}",
                [*(_tensor_bytes.describe(one, one.shape) for one in (indices, values)), shape],
                keep=(tensor, indices, values),
                finish=take,
                process_set=self._place.process_set,
            )

        shape = _ops.Tensor(0, 0, int(_ops.Dtype.UINT8), (0, *tensor.shape))
        self._postponed.start()
        barrier = _calls.submit(self._place.group, Op.BARRIER, None, 0, None, None, 0, tag=_calls.SPARSE)
        number = next(self._numbers)
        what = "sparse_all_reduce"
        label = (what, "as call", number, "of group", self._place.label)
        work = Compared(label, barrier, gather, [tensor], self._time(opts), after)
        self._note(work, what, [tensor])
        return work.run()

    def reduce(self, tensors: Any, opts: Any = None, *more: Any) -> Any:
        """torch.distributed.reduce."""
        tensor = _one(tensors, "reduce")
        if self._elsewhere(tensor):
            return super().reduce(tensors, opts)
        reduction, root = _reductions.of(opts.reduceOp), self._root(opts, "reduce")
        is_root = opts.rootRank == self._my_rank
        _reductions.check(tensor, reduction)
        dense, reduction = reduction.apply(_tensors.dense(tensor))
        if reduction.fold is not None:
            return self._fold_at(root, tensor, dense, reduction, opts)

        def after() -> None:
            if is_root and dense is not tensor:
                _tensors.copy(tensor, dense)

        return self._call(
            "reduce",
            Op.REDUCE,
            dense,
            dense.numel(),
            dense,
            dense if is_root else None,
            [tensor],
            opts,
            after,
            keep=tensor,
            root=root,
            reduce_op=reduction.op,
            factor=reduction.factor,
        )

    def _fold_at(self, root: int, tensor: torch.Tensor, dense: torch.Tensor, reduction: Reduction, opts: Any) -> Work:
        """A reduction that the runtime does not have: the root gets the inputs of all."""
        is_root = root == self._place.ranks[self._my_rank]
        rows = torch.empty((self._my_size, *tensor.shape), dtype=tensor.dtype) if is_root else None

        def after() -> None:
            if rows is not None:
                _tensors.copy(tensor, reduction.reduce(list(rows.unbind(0))))

        return self._call(
            "reduce",
            Op.GATHER,
            dense,
            dense.numel(),
            dense,
            rows,
            [tensor],
            opts,
            after,
            keep=tensor,
            root=root,
            tag=reduction.tag,
        )

    def broadcast(self, tensors: Any, opts: Any = None, *more: Any) -> Any:
        """torch.distributed.broadcast."""
        tensor = _one(tensors, "broadcast")
        if not tensor.is_cpu and self._elsewhere(tensor):
            return super().broadcast(tensors, opts)
        root = self._root(opts, "broadcast")
        dense = _tensors.dense(tensor)

        def after() -> None:
            if dense is not tensor:
                _tensors.copy(tensor, dense)

        return self._call(
            "broadcast",
            Op.BROADCAST,
            dense,
            dense.numel(),
            dense,
            dense,
            [tensor],
            opts,
            after,
            keep=tensor,
            root=root,
        )

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """torch.distributed.all_gather."""
        tensor = _one(inputs, "all_gather")
        if self._elsewhere(tensor):
            return super().allgather(outputs, inputs, opts)
        targets = _one(outputs, "all_gather") if outputs and not isinstance(outputs[0], torch.Tensor) else outputs
        self._check_parts("all_gather", tensor, targets)
        return self._gather([targets], [tensor], "all_gather", list(targets), opts)

    def _check_parts(self, what: str, tensor: torch.Tensor, targets: Tensors, kind: str = "outputs") -> None:
        if len(targets) != self._my_size:
            raise ValueError(f"horovod: {what}: there are {len(targets)} {kind} for {self._my_size} ranks")
        for target in targets:
            if target.numel() != tensor.numel() or target.dtype != tensor.dtype:
                raise ValueError(
                    f"horovod: {what}: invalid tensor size: an output of shape {list(target.shape)} and "
                    f"{target.dtype} for inputs of shape {list(tensor.shape)} and {tensor.dtype}"
                )

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        if self._elsewhere(tensor):
            return super()._allgather_base(output, tensor, opts)
        return self._gather([[output]], [tensor], "all_gather_into_tensor", [output], opts)

    all_gather_single = _allgather_base

    def allgather_coalesced(self, output_lists: Any, inputs: Tensors, opts: Any = None) -> Any:
        """torch.distributed.all_gather_coalesced."""
        if inputs and self._elsewhere(inputs[0]):
            return super().allgather_coalesced(output_lists, inputs, opts)
        if len(output_lists) != self._my_size:
            raise ValueError(
                f"horovod: all_gather_coalesced: there are {len(output_lists)} lists for {self._my_size} ranks"
            )
        return self._gather(
            [list(targets) for targets in zip(*output_lists)],
            inputs,
            "all_gather_coalesced",
            [target for targets in output_lists for target in targets],
            opts,
        )

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Several of torch.distributed.all_gather_into_tensor."""
        if inputs and self._elsewhere(inputs[0]):
            return super().allgather_into_tensor_coalesced(outputs, inputs, opts)
        return self._gather(
            [[output] for output in outputs], inputs, "all_gather_into_tensor_coalesced", list(outputs), opts
        )

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gather(self, targets: List[Tensors], inputs: Tensors, what: str, outputs: Any, opts: Any) -> Work:
        """Gathers each input from all ranks, into targets that take the ranks' parts one behind another."""
        if len(inputs) != len(targets):
            raise ValueError(f"horovod: {what}: there are {len(inputs)} inputs and {len(targets)} outputs")
        for tensor, many in zip(inputs, targets):
            if sum(target.numel() for target in many) != tensor.numel() * self._my_size or any(
                target.dtype != tensor.dtype for target in many
            ):
                raise ValueError(
                    f"horovod: {what}: the outputs must have the dtype of the input, {tensor.dtype}, and its "
                    f"{tensor.numel()} elements for each of the {self._my_size} ranks"
                )
        if len(inputs) != 1 and not _tensor_bytes.have_one_dtype(inputs):
            works = [self._gather([many], [tensor], what, list(many), opts) for many, tensor in zip(targets, inputs)]
            return Several(works)
        dense = _tensors.dense(inputs[0]) if len(inputs) == 1 else _tensor_bytes.flat(inputs)
        is_direct = len(inputs) == 1 and len(targets[0]) == 1 and self._takes_rows(targets[0][0], dense)
        rows = targets[0][0] if is_direct else torch.empty((self._my_size, dense.numel()), dtype=dense.dtype)

        def after() -> None:
            if is_direct:
                return
            for part, many in zip(rows.split([tensor.numel() for tensor in inputs], dim=1), targets):
                _tensor_bytes.spread(part.reshape(-1), many)

        return self._call(
            what,
            Op.ALLGATHER,
            dense,
            dense.numel(),
            dense,
            rows,
            outputs,
            opts,
            after,
            list(inputs),
            keep=(inputs, targets),
            tag=_calls.tag_of_sizes(inputs),
        )

    def _takes_rows(self, target: torch.Tensor, row: torch.Tensor) -> bool:
        """Whether the ranks' rows may be written into the target, which may have this rank's row in its place."""
        own = target.data_ptr() + self._my_rank * _tensor_bytes.size_of(row)
        return _tensor_bytes.is_plain(target) and (row.data_ptr() == own or not _tensor_bytes.overlap(target, row))

    def _in_rows(self, tensor: torch.Tensor, what: str) -> torch.Tensor:
        if tensor.numel() % self._my_size:
            raise ValueError(f"horovod: {what}: {tensor.numel()} elements do not divide by {self._my_size} ranks")
        return _tensors.dense(tensor.detach()).reshape(self._my_size, -1)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, *more: Any) -> Any:
        """torch.distributed.reduce_scatter."""
        output = _one(outputs, "reduce_scatter")
        if self._elsewhere(output):
            return super().reduce_scatter(outputs, inputs, opts)
        parts = _one(inputs, "reduce_scatter") if not isinstance(inputs[0], torch.Tensor) else inputs
        if len(parts) != self._my_size:
            raise ValueError(f"horovod: reduce_scatter: there are {len(parts)} inputs for {self._my_size} ranks")
        reduction = _reductions.of(getattr(opts, "reduceOp", opts))
        rows = torch.stack([part.detach().reshape(-1) for part in parts])
        return self._scatter_rows("reduce_scatter", [output], [rows], reduction, opts)

    def _reduce_scatter_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        if self._elsewhere(tensor):
            return super()._reduce_scatter_base(output, tensor, opts)
        rows = self._in_rows(tensor, "reduce_scatter_tensor")
        return self._scatter_rows(
            "reduce_scatter_tensor", [output], [rows], _reductions.of(getattr(opts, "reduceOp", None)), opts
        )

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Several of torch.distributed.reduce_scatter_tensor."""
        if inputs and self._elsewhere(inputs[0]):
            return super().reduce_scatter_tensor_coalesced(outputs, inputs, opts)
        rows = [self._in_rows(tensor, "reduce_scatter_tensor_coalesced") for tensor in inputs]
        return self._scatter_rows(
            "reduce_scatter_tensor_coalesced", outputs, rows, _reductions.of(getattr(opts, "reduceOp", None)), opts
        )

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _scatter_rows(self, what: str, outputs: Tensors, inputs: Tensors, reduction: Reduction, opts: Any) -> Work:
        """Reduces and scatters dense tensors of as many rows as there are ranks."""
        for output, rows in zip(outputs, inputs):
            if output.numel() * self._my_size != rows.numel() or output.dtype != rows.dtype:
                raise ValueError(
                    f"horovod: {what}: the input must have {self._my_size} times the elements of the "
                    "output, and its dtype"
                )
            _reductions.check(rows, reduction)
        if len(inputs) != 1 and (reduction.fold is not None or not _tensor_bytes.have_one_dtype(inputs)):
            works = [self._scatter_rows(what, [one], [rows], reduction, opts) for one, rows in zip(outputs, inputs)]
            return Several(works)
        if reduction.fold is not None:
            return self._fold_rows(what, outputs[0], inputs[0], reduction, opts)
        whole = inputs[0] if len(inputs) == 1 else torch.cat(list(inputs), dim=1)
        whole, reduction = reduction.apply(whole)
        count = whole.numel() // self._my_size
        is_direct = len(outputs) == 1 and _tensor_bytes.takes_values(outputs[0], whole)
        result = outputs[0] if is_direct else torch.empty(count, dtype=whole.dtype)

        def after() -> None:
            if not is_direct:
                _tensor_bytes.spread(result, outputs)

        return self._call(
            what,
            Op.REDUCESCATTER,
            whole,
            count,
            whole,
            result,
            list(outputs),
            opts,
            after,
            list(inputs),
            keep=outputs,
            tag=_calls.tag_of_sizes(outputs),
            reduce_op=reduction.op,
            factor=reduction.factor,
        )

    def _fold_rows(self, what: str, output: torch.Tensor, rows: torch.Tensor, reduction: Reduction, opts: Any) -> Work:
        received = torch.empty_like(rows)

        def after() -> None:
            _tensors.copy(output, reduction.reduce(list(received.unbind(0))).reshape(output.shape))

        each = [rows.shape[1]] * self._my_size
        return self._exchange(what, rows, each, [received], each, [output], opts, after, tag=reduction.tag)

    def _exchange(
        self,
        what: str,
        source: torch.Tensor,
        sent: Sequence[int],
        targets: Tensors,
        expected: Sequence[int],
        outputs: Any,
        opts: Any,
        after: Optional[Callable[[], None]] = None,
        inputs: Any = None,
        tag: int = 0,
    ) -> Work:
        """Sends elements to each rank. `expected`: the elements from each rank, one behind another in the targets."""
        is_direct = len(targets) == 1 and _tensor_bytes.takes_values(targets[0], source)
        received = targets[0] if is_direct else torch.empty(sum(expected), dtype=source.dtype)

        def finish() -> None:
            if not is_direct:
                _tensor_bytes.spread(received, targets)
            if after is not None:
                after()

        return self._call(
            what,
            Op.ALLTOALL,
            source,
            0,
            source,
            received,
            outputs,
            opts,
            finish,
            [source] if inputs is None else inputs,
            keep=targets,
            counts=[*sent, *expected],
            tag=tag,
        )

    def alltoall_base(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Any:
        """torch.distributed.all_to_all_single."""
        if self._elsewhere(tensor):
            return super().alltoall_base(output, tensor, output_splits, input_splits, opts)
        what = "all_to_all_single"
        if output.dtype != tensor.dtype:
            raise ValueError(f"horovod: {what}: the output is {output.dtype}, and the input {tensor.dtype}")
        sent = self._splits(what, tensor, input_splits)
        expected = self._splits(what, output, output_splits)
        return self._exchange(what, _tensors.dense(tensor), sent, [output], expected, [output], opts)

    all_to_all_single = alltoall_base

    def _splits(self, what: str, tensor: torch.Tensor, splits: Sequence[int]) -> List[int]:
        """Returns the elements for each rank. `splits`: rows."""
        rows = tensor.shape[0] if tensor.dim() else 1
        row = tensor.numel() // rows if rows else 0
        if not splits:
            if rows % self._my_size:
                raise RuntimeError(
                    f"horovod: {what}: Tensor's dim 0 does not divide equally across group size: {rows} "
                    f"rows for {self._my_size} ranks"
                )
            return [rows // self._my_size * row] * self._my_size
        if len(splits) != self._my_size:
            raise RuntimeError(
                f"horovod: {what}: Number of tensor splits not equal to group size: {list(splits)} for "
                f"{self._my_size} ranks"
            )
        if sum(splits) != rows:
            raise RuntimeError(
                f"horovod: {what}: Split sizes doesn't match total dim 0 size: {list(splits)} for {rows} rows"
            )
        return [split * row for split in splits]

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """torch.distributed.all_to_all."""
        if inputs and self._elsewhere(inputs[0]):
            return super().alltoall(outputs, inputs, opts)
        if len(inputs) != self._my_size or len(outputs) != self._my_size:
            raise ValueError(
                f"horovod: all_to_all: there are {len(inputs)} inputs and {len(outputs)} outputs for "
                f"{self._my_size} ranks"
            )
        source = _tensor_bytes.flat(inputs)
        if any(output.dtype != source.dtype for output in outputs):
            raise ValueError(f"horovod: all_to_all: the outputs must be {source.dtype}, as the inputs are")
        return self._exchange(
            "all_to_all",
            source,
            [tensor.numel() for tensor in inputs],
            outputs,
            [output.numel() for output in outputs],
            list(outputs),
            opts,
            inputs=inputs,
        )

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, *more: Any) -> Any:
        """torch.distributed.gather."""
        tensor = _one(inputs, "gather")
        if self._elsewhere(tensor):
            return super().gather(outputs, inputs, opts)
        root = self._root(opts, "gather")
        dense = _tensors.dense(tensor)
        targets: Tensors = []
        rows: Optional[torch.Tensor] = None
        if opts.rootRank == self._my_rank:
            targets = _one(outputs, "gather") if not isinstance(outputs[0], torch.Tensor) else outputs
            self._check_parts("gather", dense, targets)
            rows = torch.empty((self._my_size, dense.numel()), dtype=dense.dtype)

        def after() -> None:
            if rows is not None:
                _tensor_bytes.spread(rows.reshape(-1), targets)

        return self._call(
            "gather",
            Op.GATHER,
            dense,
            dense.numel(),
            dense,
            rows,
            list(targets),
            opts,
            after,
            [tensor],
            keep=targets,
            root=root,
        )

    def gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """torch.distributed.gather_single."""
        if self._elsewhere(tensor):
            return super().gather_single(output, tensor, opts)
        is_root = opts.rootRank == self._my_rank
        return self.gather([output.detach().view(self._my_size, -1).unbind()] if is_root else [], [tensor], opts)

    gather_into_tensor = gather_single

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, *more: Any) -> Any:
        """torch.distributed.scatter."""
        output = _one(outputs, "scatter")
        if self._elsewhere(output):
            return super().scatter(outputs, inputs, opts)
        root = self._root(opts, "scatter")
        parts: Any = []
        rows: Optional[torch.Tensor] = None
        if opts.rootRank == self._my_rank:
            parts = _one(inputs, "scatter") if not isinstance(inputs[0], torch.Tensor) else inputs
            self._check_parts("scatter", output, parts, "inputs")
            rows = torch.stack([part.detach().reshape(-1) for part in parts])
        result = _tensor_bytes.memory_of(output)

        def after() -> None:
            if result is not output:
                _tensors.copy(output, result)

        return self._call(
            "scatter",
            Op.SCATTER,
            output,
            output.numel(),
            rows,
            result,
            [output],
            opts,
            after,
            parts,
            keep=output,
            root=root,
        )

    def barrier(self, opts: Any = None, *more: Any) -> Any:
        """torch.distributed.barrier."""
        device = getattr(opts, "device", None)
        for own, backend in self._devices.items():
            if device is not None and own.type == device.type:
                return backend.barrier(opts)
        return self._call("barrier", Op.BARRIER, None, 0, None, None, [], opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier by the store: rank 0 names the ranks that do not come."""
        seconds = (
            self._seconds
            if timeout is None
            else (timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout))
        )
        _monitored.wait(self._store, next(self._barriers), self._my_rank, self._my_size, seconds, wait_all_ranks)

    # ---- messages ----

    def send(self, tensors: Any, to: int, tag: int = 0) -> Any:
        """torch.distributed.isend."""
        tensor = _one(tensors, "send")
        if self._elsewhere(tensor):
            return super().send(tensors, to, tag)
        return self._keep(self._messages.send(tensor, to, tag, self._seconds), "send")

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Any:
        """torch.distributed.irecv."""
        tensor = _one(tensors, "recv")
        if self._elsewhere(tensor):
            return super().recv(tensors, source, tag)
        return self._keep(self._messages.receive(tensor, source, tag, self._seconds), "recv")

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """torch.distributed.irecv from any rank."""
        tensor = _one(tensors, "recv")
        if self._elsewhere(tensor):
            return super().recv_anysource(tensors, tag)
        return self._keep(self._messages.receive(tensor, None, tag, self._seconds), "recvAnySource")

    def _keep(self, work: Work, what: str) -> Work:
        return self._note_running(work, what, work.result())

    # torch 1.13 gives no device, and keeps the works itself.
    def _start_coalescing(self, device: Any = None) -> Any:
        if self._is_of_another(device):
            return super()._start_coalescing(device)
        self._coalesced = None if device is None else []

    def _end_coalescing(self, device_or_works: Any = None, *more: Any) -> Any:
        if self._is_of_another(device_or_works):
            return super()._end_coalescing(device_or_works, *more)
        works, self._coalesced = self._coalesced, None
        return Several(works) if works is not None else None

    def _is_of_another(self, device: Any) -> bool:
        """Whether the device is that of another backend. Raises for one that no backend has."""
        return isinstance(device, torch.device) and device.type != "cpu" and bool(self._other(device.type))


_groups: Any = weakref.WeakSet()  # of this process


def _complete_calls(pid: int) -> None:
    """At exit, other ranks may wait for calls of this one. After an exception they do not come, and it may have been
    caught."""
    if os.getpid() == pid and not hasattr(sys, "last_type"):
        until = time.monotonic() + _SECONDS_AT_EXIT
        for group in list(_groups):
            group.complete_calls(min(group._seconds, max(until - time.monotonic(), 0.001)))


def _end(place: _ranks.Place) -> None:
    # Other ranks learn that this one leaves the job, and not the default group alone.
    if not (place.is_default and _ranks.end()):
        _ranks.leave(place)
