"""A group of torch.distributed over the runtime.

The n-th collective of a group has one name on all ranks, whatever it is: the runtime compares kind, dtype, shape,
root and reduction of what has one name, and a difference is an error on every rank.
"""

from __future__ import annotations

import datetime
import itertools
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from horovod import _native, _ops
from horovod._ops import Kind
from horovod.torch import _submission, _tensors
from horovod.torch.distributed import _messages, _monitored, _profiling, _ranks, _reductions, _tensor_bytes
from horovod.torch.distributed._reductions import Reduction
from horovod.torch.distributed._work import Completed, Several, Work

Tensors = Sequence[torch.Tensor]

# The names of a group's collectives repeat after as many: a program that repeats its collectives then repeats
# names with shapes, which the runtime sends as a number. Most numbers of collectives in a step divide it.
_NAMES = 240

_ONE = _reductions.ONE
_AllreduceOptions = dist.AllreduceOptions
_TELLS_WHO_WAITS = hasattr(_AllreduceOptions(), "asyncOp")
_NO_TIME = datetime.timedelta(0)
_CPU = torch.device("cpu")
# The parts are those of valid tensors of one shape.
_UNCHECKED = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}


def _allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> int:
    """Starts an allreduce in place, of all ranks or of the process set with this number, and returns its handle."""
    dense = _tensors.dense(tensor)
    form = _tensor_bytes.form_of(tensor)
    _tensors.check(tensor, "all_reduce")
    if form.parts == 2:
        _ops.check_complex("all_reduce", Kind.ALLREDUCE, op)

    def finish(handle: int) -> None:
        if dense is not tensor:
            _tensors.copy(tensor, dense)

    return _ops.submit(
        Kind.ALLREDUCE,
        f"torch.{name}",
        [_tensor_bytes.describe(dense, dense.shape, dense)],
        keep=(tensor, dense),
        finish=finish,
        reduce_op=op or 0,
        prescale=prescale_factor,
        postscale=postscale_factor,
        process_set=process_set or 0,
    )


_allreduce_by_native_code = _submission.fast_path("torch.")(_allreduce_async_)


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
        self._set = place.process_set
        self._store = store
        self._my_rank, self._my_size = rank, size
        self._numbers = itertools.count()
        prefix = f"{place.name}." if place.is_default else ""
        self._names = [f"{prefix}{number}" for number in range(_NAMES)]
        self._latest: List[Optional[Work]] = [None] * _NAMES
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

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Whether the backend allocates tensors: no."""
        return False

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

    def _wait_for_pending_works(self) -> None:
        for work in self._latest:
            if work is not None and not work.is_completed():
                work.wait()

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return int(repr(self._numbers)[len("count(") : -1])

    def shutdown(self) -> None:
        """Ends the group, and with the default group what it has started."""
        self._end()

    def abort(self) -> None:
        """As `shutdown`."""
        self._end()

    def split_group(self, *args: Any, **kwargs: Any) -> Any:
        """Raises RuntimeError."""
        raise RuntimeError("horovod: a group cannot be split; make groups with dist.new_group")

    splitGroup = merge_remote_group = mergeRemoteGroup = split_group

    # ---- how collectives run ----

    def _begin(self) -> int:
        """Returns the index of the next collective's name, once the collective that had it is complete."""
        index = next(self._numbers) % _NAMES
        earlier = self._latest[index]
        if earlier is not None and not earlier._is_done:
            try:
                earlier.wait()
            except Exception:  # its own caller gets the error
                pass
        return index

    def _time(self, opts: Any) -> float:
        timeout = getattr(opts, "timeout", None)
        if timeout is None or timeout <= _NO_TIME:
            return self._seconds
        seconds: float = timeout.total_seconds()
        return seconds

    def _record(
        self,
        index: int,
        what: str,
        handles: List[Any],
        outputs: Any,
        opts: Any,
        finish: Optional[Callable[[], None]] = None,
        inputs: Any = None,
    ) -> Work:
        work = Work((what, index, "of the group", self._name), handles, outputs, self._time(opts), finish)
        # In torch before 2.9, C++ forgets the object, without which the work has no methods.
        self._latest[index] = work
        if _profiling.is_on():
            work._event = _profiling.begin(self._backend_name, what, outputs if inputs is None else inputs)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _run(
        self,
        what: str,
        kind: Kind,
        tensors: Sequence[_ops.Tensor],
        keep: Any,
        outputs: Any,
        opts: Any,
        take: Optional[Callable[[int], None]] = None,
        after: Optional[Callable[[], None]] = None,
        inputs: Any = None,
        **arguments: Any,
    ) -> Work:
        """Submits a collective. `take` gets the handle of complete work, in whose memory its outputs are; `after`
        runs then."""
        index = self._begin()
        handle = _ops.submit(
            kind,
            f"torch.{self._names[index]}",
            tensors,
            keep=keep,
            finish=take or _nothing,
            process_set=self._set,
            **arguments,
        )
        return self._record(index, what, [handle], outputs, opts, after, inputs)

    def _elsewhere(self, tensor: torch.Tensor) -> bool:
        """Whether another backend has the tensor. Raises for a device that no backend has."""
        if tensor.is_cpu:
            return False
        self._other(tensor.device.type)
        return True

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
        tensor_ = tensor
        if reduction.factor is not _ONE:
            tensor_, reduction = reduction.apply(tensor)
        index = self._begin()
        name = self._names[index]
        if self._set:
            handle = _allreduce_async_(tensor_, None, name, reduction.op, reduction.factor, 1.0, self._set)
        elif reduction.factor is _ONE:
            handle = _allreduce_by_native_code(tensor_, None, name, reduction.op)
        else:
            handle = _allreduce_by_native_code(tensor_, None, name, reduction.op, reduction.factor)
        if _TELLS_WHO_WAITS and opts.__class__ is _AllreduceOptions and not opts.asyncOp and not _profiling.is_on():
            return self._wait_now(index, handle, tensor, opts)
        return self._record(index, "all_reduce", [handle], [tensor], opts)

    def _wait_now(self, index: int, handle: int, tensor: torch.Tensor, opts: Any) -> Work:
        """Waits for a call after which torch waits at once, and makes no object for it."""
        self._latest[index] = None
        seconds = self._time(opts)
        try:
            _native.wait_for(handle, seconds)
        except TimeoutError:
            work = self._record(index, "all_reduce", [handle], [tensor], opts)
            work._complete(seconds, has_waited=True)
            return work
        except BaseException:
            _native.abandon(handle)
            raise
        return self._nothing_to_wait_for

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        """torch.distributed.all_reduce_coalesced."""
        reduction = _reductions.of(getattr(opts, "reduceOp", None))
        if tensors and self._elsewhere(tensors[0]):
            return super().allreduce_coalesced(tensors, opts)
        if reduction.fold is not None or not tensors:
            return Several([self._fold_all(tensor, reduction, opts) for tensor in tensors])
        return self._reduce_in_place("all_reduce_coalesced", tensors, [], reduction, opts)

    def _reduce_in_place(
        self, what: str, tensors: Tensors, more: List[_ops.Tensor], reduction: Reduction, opts: Any
    ) -> Work:
        dense = [_tensors.dense(tensor) for tensor in tensors]
        for one in dense:
            _reductions.check(one, reduction)

        def after() -> None:
            for tensor, source in zip(tensors, dense):
                if tensor is not source:
                    _tensors.copy(tensor, source)

        described = [_tensor_bytes.describe(one, one.shape, one) for one in dense]
        return self._run(
            what,
            Kind.ALLREDUCE,
            described + more,
            (list(tensors), dense),
            list(tensors),
            opts,
            after=after,
            reduce_op=reduction.op,
            prescale=reduction.factor,
        )

    def _fold_all(self, tensor: torch.Tensor, reduction: Reduction, opts: Any, root: int = -1) -> Work:
        """A reduction that the runtime does not have: each rank gets the inputs of all."""
        _reductions.check(tensor, reduction)
        rows = torch.empty((self._my_size, *tensor.shape), dtype=tensor.dtype)

        def after() -> None:
            with torch.no_grad():
                tensor.copy_(reduction.reduce(list(rows.unbind(0))))

        return self._gather_rows(
            "all_reduce", tensor, [rows], [tensor], opts, after, _mark(reduction.op_number, root + 1)
        )

    def _sparse_allreduce(self, tensor: torch.Tensor, reduction: Reduction, opts: Any) -> Work:
        if reduction.op != _ops.Sum or tensor.layout is not torch.sparse_coo:
            raise RuntimeError("horovod: sparse tensors are reduced by ReduceOp.SUM only, and in the layout sparse_coo")
        tensor = tensor.detach() if tensor.requires_grad else tensor
        found = tensor.coalesce()
        indices, values = found.indices().t().contiguous(), found.values().contiguous()
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

        described = [_tensor_bytes.describe(one, one.shape) for one in (indices, values)] + [_mark(2, *tensor.shape)]
        return self._run(
            "sparse_all_reduce", Kind.ALLGATHER, described, (tensor, indices, values), [tensor], opts, take, after
        )

    def reduce(self, tensors: Any, opts: Any = None, *more: Any) -> Any:
        """torch.distributed.reduce."""
        tensor = _one(tensors, "reduce")
        if self._elsewhere(tensor):
            return super().reduce(tensors, opts)
        reduction, root = _reductions.of(opts.reduceOp), opts.rootRank
        is_root = root == self._my_rank
        target = tensor if is_root else tensor.detach().clone(memory_format=torch.contiguous_format)
        if reduction.fold is not None:
            work = self._fold_all(target, reduction, opts, root)
        else:
            mark = _mark(1, root)
            target, reduction = reduction.apply(target)
            work = self._reduce_in_place("reduce", [target], [mark], reduction, opts)
        work._outputs = [tensor]
        return work

    def broadcast(self, tensors: Any, opts: Any = None, *more: Any) -> Any:
        """torch.distributed.broadcast."""
        tensor = _one(tensors, "broadcast")
        if not tensor.is_cpu and self._elsewhere(tensor):
            return super().broadcast(tensors, opts)
        root = self._place.ranks[getattr(opts, "rootRank", 0)]
        dense = _tensors.dense(tensor)

        def after() -> None:
            if dense is not tensor:
                _tensors.copy(tensor, dense)

        return self._run(
            "broadcast",
            Kind.BROADCAST,
            [_tensor_bytes.describe(dense, dense.shape, dense)],
            (tensor, dense),
            [tensor],
            opts,
            after=after,
            root_rank=root,
        )

    def _gather_rows(
        self,
        what: str,
        tensor: torch.Tensor,
        targets: Tensors,
        outputs: Any,
        opts: Any,
        after: Optional[Callable[[], None]] = None,
        *marks: _ops.Tensor,
    ) -> Work:
        """Gathers one row of each rank into the targets, one behind another."""
        dense = _tensors.dense(tensor)
        size = _tensor_bytes.size_of(dense) * self._my_size
        if sum(map(_tensor_bytes.size_of, targets)) != size or any(one.dtype != dense.dtype for one in targets):
            raise ValueError(
                f"horovod: {what}: the outputs must have the dtype of the input, {dense.dtype}, and its "
                f"{dense.numel()} elements for each of the {self._my_size} ranks"
            )

        def take(handle: int) -> None:
            _tensor_bytes.fill_all(targets, _ops.output(handle).address)

        return self._run(
            what,
            Kind.ALLGATHER,
            [_tensor_bytes.describe(dense, (1, *dense.shape)), *marks],
            (dense, targets),
            outputs,
            opts,
            take,
            after,
            [tensor],
        )

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """torch.distributed.all_gather."""
        tensor = _one(inputs, "all_gather")
        if self._elsewhere(tensor):
            return super().allgather(outputs, inputs, opts)
        targets = _one(outputs, "all_gather") if outputs and not isinstance(outputs[0], torch.Tensor) else outputs
        if len(targets) != self._my_size:
            raise ValueError(f"horovod: all_gather: there are {len(targets)} outputs for {self._my_size} ranks")
        for target in targets:
            if target.numel() != tensor.numel():
                raise ValueError(
                    f"horovod: all_gather: invalid tensor size: an output of shape {list(target.shape)} "
                    f"for inputs of shape {list(tensor.shape)}"
                )
        return self._gather_rows("all_gather", tensor, targets, list(targets), opts)

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        if self._elsewhere(tensor):
            return super()._allgather_base(output, tensor, opts)
        return self._gather_rows("all_gather_into_tensor", tensor, [output], [output], opts)

    all_gather_single = _allgather_base

    def allgather_coalesced(self, output_lists: Any, inputs: Tensors, opts: Any = None) -> Any:
        """torch.distributed.all_gather_coalesced."""
        if inputs and self._elsewhere(inputs[0]):
            return super().allgather_coalesced(output_lists, inputs, opts)
        if len(output_lists) != self._my_size:
            raise ValueError(
                f"horovod: all_gather_coalesced: there are {len(output_lists)} lists for {self._my_size} ranks"
            )
        return self._gather_many(
            "all_gather_coalesced",
            [list(targets) for targets in zip(*output_lists)],
            inputs,
            [target for targets in output_lists for target in targets],
            opts,
        )

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Several of torch.distributed.all_gather_into_tensor."""
        if inputs and self._elsewhere(inputs[0]):
            return super().allgather_into_tensor_coalesced(outputs, inputs, opts)
        return self._gather_many(
            "all_gather_into_tensor_coalesced", [[output] for output in outputs], inputs, list(outputs), opts
        )

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gather_many(self, what: str, targets: List[Tensors], inputs: Tensors, outputs: Any, opts: Any) -> Work:
        dense = [_tensors.dense(tensor) for tensor in inputs]
        for one, many in zip(dense, targets):
            if sum(map(_tensor_bytes.size_of, many)) != _tensor_bytes.size_of(one) * self._my_size:
                raise ValueError(
                    f"horovod: {what}: the outputs must have {self._my_size} times the elements of the inputs"
                )
        if len(dense) != len(targets):
            raise ValueError(f"horovod: {what}: there are {len(dense)} inputs and {len(targets)} outputs")

        def take(handle: int) -> None:
            for number, many in enumerate(targets):
                _tensor_bytes.fill_all(many, _ops.output(handle, number).address)

        return self._run(
            what,
            Kind.ALLGATHER,
            [_tensor_bytes.describe(one, (1, *one.shape)) for one in dense],
            (dense, targets),
            outputs,
            opts,
            take,
            inputs=list(inputs),
        )

    def _scatter_rows(
        self, what: str, outputs: Tensors, inputs: List[torch.Tensor], reduction: Reduction, opts: Any
    ) -> Work:
        """Reduces and scatters dense tensors of as many rows as there are ranks."""
        for output, rows in zip(outputs, inputs):
            if output.numel() * self._my_size != rows.numel() or output.dtype != rows.dtype:
                raise ValueError(
                    f"horovod: {what}: the input must have {self._my_size} times the elements of the "
                    "output, and its dtype"
                )
        if reduction.fold is not None:
            return Several(
                [self._fold_rows(what, output, rows, reduction, opts) for output, rows in zip(outputs, inputs)]
            )
        for rows in inputs:
            _reductions.check(rows, reduction)

        def take(handle: int) -> None:
            for number, output in enumerate(outputs):
                _tensor_bytes.fill(output, _ops.output(handle, number).address)

        prepared = [reduction.apply_to_copy(rows) for rows in inputs]
        described = [_tensor_bytes.describe(rows, rows.shape) for rows, _ in prepared]
        return self._run(
            what,
            Kind.REDUCESCATTER,
            described,
            (prepared, outputs),
            list(outputs),
            opts,
            take,
            reduce_op=reduction.op,
            prescale=prepared[0][1].factor,
        )

    def _fold_rows(self, what: str, output: torch.Tensor, rows: torch.Tensor, reduction: Reduction, opts: Any) -> Work:
        _reductions.check(rows, reduction)
        received = torch.empty_like(rows)

        def after() -> None:
            with torch.no_grad():
                output.copy_(reduction.reduce(list(received.unbind(0))).reshape(output.shape))

        each = [1] * self._my_size
        # The ranks compare shapes: the number of ones says what is reduced.
        shape = (*rows.shape, *[1] * (3 + reduction.op_number))
        return self._exchange(what, rows, each, [received], each, [output], opts, after, shape)

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

    def _exchange(
        self,
        what: str,
        rows: torch.Tensor,
        sent: Sequence[int],
        targets: Tensors,
        expected: Sequence[int],
        outputs: Any,
        opts: Any,
        after: Optional[Callable[[], None]] = None,
        shape: Optional[Tuple[int, ...]] = None,
        inputs: Any = None,
    ) -> Work:
        """Sends rows to each rank. `expected`: the rows from each rank; `shape`: of the rows, as ranks compare it."""

        def take(handle: int) -> None:
            output = _ops.output(handle)
            if list(output.received_splits or []) != list(expected):
                raise ValueError(
                    f"horovod: {what}: rank {self._my_rank} expects {list(expected)} rows of the ranks, "
                    f"which sent {output.received_splits}"
                )
            _tensor_bytes.fill_all(targets, output.address)

        described = _tensor_bytes.describe(rows, shape if shape is not None else rows.shape)
        return self._run(
            what,
            Kind.ALLTOALL,
            [described],
            (rows, targets),
            outputs,
            opts,
            take,
            after,
            inputs=[rows] if inputs is None else inputs,
            splits=list(sent),
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
        rows = _tensors.dense(tensor)
        rows = rows if rows.dim() else rows.reshape(1)
        return self._exchange(what, rows, sent, [output], expected, [output], opts)

    all_to_all_single = alltoall_base

    def _splits(self, what: str, tensor: torch.Tensor, splits: Sequence[int]) -> List[int]:
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._my_size:
                raise RuntimeError(
                    f"horovod: {what}: Tensor's dim 0 does not divide equally across group size: {rows} "
                    f"rows for {self._my_size} ranks"
                )
            return [rows // self._my_size] * self._my_size
        if len(splits) != self._my_size:
            raise RuntimeError(
                f"horovod: {what}: Number of tensor splits not equal to group size: {list(splits)} for "
                f"{self._my_size} ranks"
            )
        if sum(splits) != rows:
            raise RuntimeError(
                f"horovod: {what}: Split sizes doesn't match total dim 0 size: {list(splits)} for {rows} rows"
            )
        return list(splits)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """torch.distributed.all_to_all."""
        if inputs and self._elsewhere(inputs[0]):
            return super().alltoall(outputs, inputs, opts)
        if len(inputs) != self._my_size or len(outputs) != self._my_size:
            raise ValueError(
                f"horovod: all_to_all: there are {len(inputs)} inputs and {len(outputs)} outputs for "
                f"{self._my_size} ranks"
            )
        rows = torch.cat([tensor.detach().reshape(-1) for tensor in inputs])
        if any(output.dtype != rows.dtype for output in outputs):
            raise ValueError(f"horovod: all_to_all: the outputs must be {rows.dtype}, as the inputs are")
        return self._exchange(
            "all_to_all",
            rows,
            [tensor.numel() for tensor in inputs],
            outputs,
            [output.numel() for output in outputs],
            list(outputs),
            opts,
            shape=(rows.numel(), 1, 1, 1),
            inputs=inputs,
        )

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, *more: Any) -> Any:
        """torch.distributed.gather."""
        tensor = _one(inputs, "gather")
        if self._elsewhere(tensor):
            return super().gather(outputs, inputs, opts)
        root, dense = opts.rootRank, _tensors.dense(tensor)
        targets: Tensors = []
        if root == self._my_rank:
            targets = _one(outputs, "gather") if not isinstance(outputs[0], torch.Tensor) else outputs
            if len(targets) != self._my_size:
                raise ValueError(f"horovod: gather: there are {len(targets)} outputs for {self._my_size} ranks")
            for target in targets:
                if target.numel() != dense.numel() or target.dtype != dense.dtype:
                    raise ValueError(
                        "horovod: gather: the outputs must have shape and dtype of the input, "
                        f"{list(dense.shape)} and {dense.dtype}"
                    )
        sent = [int(rank == root) for rank in range(self._my_size)]
        expected = [int(root == self._my_rank)] * self._my_size
        return self._exchange(
            "gather", dense, sent, targets, expected, list(targets), opts, shape=(1, 1, dense.numel())
        )

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, *more: Any) -> Any:
        """torch.distributed.scatter."""
        output = _one(outputs, "scatter")
        if self._elsewhere(output):
            return super().scatter(outputs, inputs, opts)
        root = opts.rootRank
        rows, parts = torch.empty((0, output.numel()), dtype=output.dtype), []
        if root == self._my_rank:
            parts = _one(inputs, "scatter") if not isinstance(inputs[0], torch.Tensor) else inputs
            if len(parts) != self._my_size:
                raise ValueError(f"horovod: scatter: there are {len(parts)} inputs for {self._my_size} ranks")
            rows = torch.stack([part.detach().reshape(-1) for part in parts])
            if rows.dtype != output.dtype or rows.shape[1] != output.numel():
                raise ValueError(
                    "horovod: scatter: the inputs must have shape and dtype of the output, "
                    f"{list(output.shape)} and {output.dtype}"
                )
        sent = [int(root == self._my_rank)] * self._my_size
        expected = [int(rank == root) for rank in range(self._my_size)]
        return self._exchange(
            "scatter",
            rows,
            sent,
            [output],
            expected,
            [output],
            opts,
            shape=(rows.shape[0], output.numel(), 1),
            inputs=parts,
        )

    def barrier(self, opts: Any = None, *more: Any) -> Any:
        """torch.distributed.barrier."""
        nothing = _ops.Tensor(0, 0, int(_ops.Dtype.BOOL), (0,))
        return self._run("barrier", Kind.ALLREDUCE, [nothing], None, [], opts, reduce_op=_ops.Sum)

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
        if _profiling.is_on():
            work._event = _profiling.begin(self._backend_name, what, work.result())
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    # torch 1.13 gives no device, and keeps the works itself.
    def _start_coalescing(self, device: Any = None) -> None:
        self._coalesced = None if device is None else []

    def _end_coalescing(self, device_or_works: Any = None) -> Any:
        works, self._coalesced = self._coalesced, None
        return Several(works) if works is not None else None


def _nothing(handle: int) -> None:
    pass


def _mark(*numbers: int) -> _ops.Tensor:
    """An empty tensor whose shape has these numbers: the ranks compare it."""
    return _ops.Tensor(0, 0, int(_ops.Dtype.UINT8), (0, *numbers))


def _end(place: _ranks.Place) -> None:
    if place.is_default:
        _ranks.end()
    else:
        _ranks.remove_set(place)
