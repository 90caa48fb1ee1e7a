"""A group of torch.distributed over the runtime.

The n-th collective of a group must be the same operation on all ranks: the runtime compares kind, dtype, count, root
and reduction, and every rank gets an error if they differ.
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
from typing import Any, Iterable, Optional, Sequence

import torch
import torch.distributed as dist

from horovod.torch import _tensors
from horovod.torch.distributed import _backward, _messages, _monitored, _moving, _profiling, _ranks
from horovod.torch.distributed import _reducing, _reductions, _tensor_bytes
from horovod.torch.distributed._calls import Op
from horovod.torch.distributed._described import Described
from horovod.torch.distributed._work import Several, Work

Tensors = Sequence[torch.Tensor]

_ONE = _reductions.ONE
_AllreduceOptions = dist.AllreduceOptions
_TELLS_WHO_WAITS = hasattr(_AllreduceOptions(), "asyncOp")
# Limits in seconds: for started calls at the end of a program, and for sends at the end of a group.
_SECONDS_AT_EXIT = 30


def _one(tensors: Any, what: str) -> Any:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"horovod: {what} takes one tensor of this rank, and there are {len(tensors)}")
    return tensors[0]


class HorovodProcessGroup(Described):
    """A process group as this rank uses it. Handles tensors in host memory; other devices may have other backends."""

    def __init__(self, place: _ranks.Place, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(place, store, rank, size, timeout)
        self._messages = _messages.Messages(place)
        self._barriers = itertools.count()
        self._end = weakref.finalize(self, _end, place)
        self._end.atexit = False
        _groups.add(self)
        # Exit handlers run in reverse order. The runtime has started before, so it ends after this handler.
        atexit.unregister(_complete_calls)
        atexit.register(_complete_calls, os.getpid())

    def _wait_for_pending_works(self) -> None:
        for work in self._caller.works.all():
            if not work.is_completed():
                work.wait()

    def shutdown(self) -> None:
        """Ends the group; the default group also ends the runtime if it has started the runtime. First completes the
        started calls, within the group's timeout and unless the job fails."""
        try:
            # torch may end the default group, and thereby the runtime, before the other groups.
            for group in list(_groups) if self._place.is_default else [self]:
                group.complete_calls(group._caller.seconds)
        finally:
            self._end_all("shutdown")

    def abort(self) -> None:
        """Ends the group as `shutdown` does, without waiting for calls."""
        self._end_all("abort")

    def _end_all(self, how: str) -> None:
        """Ends the group, and the backends of other devices by their method named `how`."""
        with contextlib.ExitStack() as ends:
            ends.callback(self._end)
            if self._end.alive:
                for backend in self._devices.values():  # before torch 2.5, NCCL's name has an underscore
                    end = getattr(backend, how, None) or getattr(backend, f"_{how}", None)
                    if end is not None:
                        ends.callback(end)

    def complete_calls(self, seconds: float) -> None:
        """Waits for started collectives and sends, and ignores their errors. Skips works whose wait has already
        ended."""
        if not self._end.alive:
            return
        self._caller.postponed.start()
        until = time.monotonic() + seconds
        self._complete(self._caller.works.all(), until)
        # A large message is complete only once it is received, which may never happen.
        self._complete(self._messages.sends(), min(until, time.monotonic() + _SECONDS_AT_EXIT))

    def _complete(self, works: Iterable[Work], until: float) -> None:
        for work in works:
            with contextlib.suppress(Exception):
                if not work._is_given_up:
                    work.complete(max(until - time.monotonic(), 0.001))

    def _root(self, opts: Any, what: str) -> int:
        """Returns the root of a call as a rank of the job."""
        return self._place.rank_of(getattr(opts, "rootRank", 0), f"{what}: the root")

    # ---- collectives ----

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Implements torch.distributed.all_reduce."""
        tensor = tensors[0] if tensors.__class__ is list and len(tensors) == 1 else _one(tensors, "all_reduce")
        reduction = _reductions.of(opts.reduceOp if opts.__class__ is _AllreduceOptions else opts)
        if not tensor.is_cpu and self._elsewhere(tensor):
            return super().allreduce(tensors, opts)
        if tensor.layout is not torch.strided:
            return _reducing.sparse_allreduce(self._caller, tensor, reduction, opts)
        if reduction.fold is not None:
            return _reducing.fold_all(self._caller, tensor, reduction, opts)
        waits_now = _TELLS_WHO_WAITS and opts.__class__ is _AllreduceOptions and not opts.asyncOp
        if waits_now and reduction.factor is _ONE and not _profiling.is_on():
            done = _reducing.reduce_now(self._caller, tensor, reduction, opts)
            if done is not None:
                return done
        elif (
            reduction.factor is _ONE and self._caller.coalesced is None and self._is_one_host and _backward.is_caller(2)
        ):
            if _tensor_bytes.is_plain(tensor):
                return _reducing.reduce_bucket(self._caller, tensor, reduction, opts)
        return _reducing.reduce_in_place(self._caller, "all_reduce", [tensor], reduction, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        """Implements torch.distributed.all_reduce_coalesced."""
        reduction = _reductions.of(getattr(opts, "reduceOp", None))
        if tensors and self._elsewhere(tensors[0]):
            return super().allreduce_coalesced(tensors, opts)
        if reduction.fold is not None:
            return Several([_reducing.fold_all(self._caller, tensor, reduction, opts) for tensor in tensors])
        return _reducing.reduce_in_place(self._caller, "all_reduce_coalesced", tensors, reduction, opts)

    def reduce(self, tensors: Any, opts: Any = None, *more: Any) -> Any:
        """Implements torch.distributed.reduce."""
        tensor = _one(tensors, "reduce")
        if self._elsewhere(tensor):
            return super().reduce(tensors, opts)
        reduction, root = _reductions.of(opts.reduceOp), self._root(opts, "reduce")
        is_root = opts.rootRank == self._caller.rank
        _reductions.check(tensor, reduction)
        dense, reduction = reduction.apply(_tensors.dense(tensor))
        if reduction.fold is not None:
            return _reducing.fold_at(self._caller, root, tensor, dense, reduction, opts)

        def after() -> None:
            if is_root and dense is not tensor:
                _tensors.copy(tensor, dense)

        return self._caller.call(
            "reduce",
            Op.REDUCE,
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

    def broadcast(self, tensors: Any, opts: Any = None, *more: Any) -> Any:
        """Implements torch.distributed.broadcast."""
        tensor = _one(tensors, "broadcast")
        if not tensor.is_cpu and self._elsewhere(tensor):
            return super().broadcast(tensors, opts)
        root = self._root(opts, "broadcast")
        dense = _tensors.dense(tensor)

        def after() -> None:
            if dense is not tensor:
                _tensors.copy(tensor, dense)

        return self._caller.call("broadcast", Op.BROADCAST, dense, dense, [tensor], opts, after, keep=tensor, root=root)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Implements torch.distributed.all_gather."""
        tensor = _one(inputs, "all_gather")
        if self._elsewhere(tensor):
            return super().allgather(outputs, inputs, opts)
        targets = _one(outputs, "all_gather") if outputs and not isinstance(outputs[0], torch.Tensor) else outputs
        _moving.check_parts(self._caller, "all_gather", tensor, targets)
        return _moving.gather(self._caller, [targets], [tensor], "all_gather", list(targets), opts)

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        if self._elsewhere(tensor):
            return super()._allgather_base(output, tensor, opts)
        return _moving.gather(self._caller, [[output]], [tensor], "all_gather_into_tensor", [output], opts)

    all_gather_single = _allgather_base

    def allgather_coalesced(self, output_lists: Any, inputs: Tensors, opts: Any = None) -> Any:
        """Implements torch.distributed.all_gather_coalesced."""
        if inputs and self._elsewhere(inputs[0]):
            return super().allgather_coalesced(output_lists, inputs, opts)
        if len(output_lists) != self._caller.size:
            raise ValueError(
                f"horovod: all_gather_coalesced: there are {len(output_lists)} lists for {self._caller.size} ranks"
            )
        return _moving.gather(
            self._caller,
            [list(targets) for targets in zip(*output_lists)],
            inputs,
            "all_gather_coalesced",
            [target for targets in output_lists for target in targets],
            opts,
        )

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Implements several calls of torch.distributed.all_gather_into_tensor at once."""
        if inputs and self._elsewhere(inputs[0]):
            return super().allgather_into_tensor_coalesced(outputs, inputs, opts)
        return _moving.gather(
            self._caller,
            [[output] for output in outputs],
            inputs,
            "all_gather_into_tensor_coalesced",
            list(outputs),
            opts,
        )

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, *more: Any) -> Any:
        """Implements torch.distributed.reduce_scatter."""
        output = _one(outputs, "reduce_scatter")
        if self._elsewhere(output):
            return super().reduce_scatter(outputs, inputs, opts)
        parts = _one(inputs, "reduce_scatter") if not isinstance(inputs[0], torch.Tensor) else inputs
        if len(parts) != self._caller.size:
            raise ValueError(f"horovod: reduce_scatter: there are {len(parts)} inputs for {self._caller.size} ranks")
        reduction = _reductions.of(getattr(opts, "reduceOp", opts))
        rows = torch.stack([part.detach().reshape(-1) for part in parts])
        return _reducing.scatter_rows(self._caller, "reduce_scatter", [output], [rows], reduction, opts)

    def _reduce_scatter_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        if self._elsewhere(tensor):
            return super()._reduce_scatter_base(output, tensor, opts)
        rows = _moving.in_rows(self._caller, tensor, "reduce_scatter_tensor")
        return _reducing.scatter_rows(
            self._caller,
            "reduce_scatter_tensor",
            [output],
            [rows],
            _reductions.of(getattr(opts, "reduceOp", None)),
            opts,
        )

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Implements several calls of torch.distributed.reduce_scatter_tensor at once."""
        if inputs and self._elsewhere(inputs[0]):
            return super().reduce_scatter_tensor_coalesced(outputs, inputs, opts)
        rows = [_moving.in_rows(self._caller, tensor, "reduce_scatter_tensor_coalesced") for tensor in inputs]
        return _reducing.scatter_rows(
            self._caller,
            "reduce_scatter_tensor_coalesced",
            outputs,
            rows,
            _reductions.of(getattr(opts, "reduceOp", None)),
            opts,
        )

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall_base(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Any:
        """Implements torch.distributed.all_to_all_single."""
        if self._elsewhere(tensor):
            return super().alltoall_base(output, tensor, output_splits, input_splits, opts)
        what = "all_to_all_single"
        if output.dtype != tensor.dtype:
            raise ValueError(f"horovod: {what}: the output is {output.dtype}, and the input {tensor.dtype}")
        sent = _moving.splits(self._caller, what, tensor, input_splits)
        expected = _moving.splits(self._caller, what, output, output_splits)
        return _moving.exchange(self._caller, what, _tensors.dense(tensor), sent, [output], expected, [output], opts)

    all_to_all_single = alltoall_base

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Implements torch.distributed.all_to_all."""
        if inputs and self._elsewhere(inputs[0]):
            return super().alltoall(outputs, inputs, opts)
        if len(inputs) != self._caller.size or len(outputs) != self._caller.size:
            raise ValueError(
                f"horovod: all_to_all: there are {len(inputs)} inputs and {len(outputs)} outputs for "
                f"{self._caller.size} ranks"
            )
        source = _tensor_bytes.flat(inputs)
        if any(output.dtype != source.dtype for output in outputs):
            raise ValueError(f"horovod: all_to_all: the outputs must be {source.dtype}, as the inputs are")
        return _moving.exchange(
            self._caller,
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
        """Implements torch.distributed.gather."""
        tensor = _one(inputs, "gather")
        if self._elsewhere(tensor):
            return super().gather(outputs, inputs, opts)
        root = self._root(opts, "gather")
        dense = _tensors.dense(tensor)
        targets: Tensors = []
        rows: Optional[torch.Tensor] = None
        if opts.rootRank == self._caller.rank:
            targets = _one(outputs, "gather") if not isinstance(outputs[0], torch.Tensor) else outputs
            _moving.check_parts(self._caller, "gather", dense, targets)
            rows = torch.empty((self._caller.size, dense.numel()), dtype=dense.dtype)

        def after() -> None:
            if rows is not None:
                _tensor_bytes.spread(rows.reshape(-1), targets)

        return self._caller.call(
            "gather", Op.GATHER, dense, rows, list(targets), opts, after, [tensor], keep=targets, root=root
        )

    def gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """Implements torch.distributed.gather_single."""
        if self._elsewhere(tensor):
            return super().gather_single(output, tensor, opts)
        is_root = opts.rootRank == self._caller.rank
        return self.gather([output.detach().view(self._caller.size, -1).unbind()] if is_root else [], [tensor], opts)

    gather_into_tensor = gather_single

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, *more: Any) -> Any:
        """Implements torch.distributed.scatter."""
        output = _one(outputs, "scatter")
        if self._elsewhere(output):
            return super().scatter(outputs, inputs, opts)
        root = self._root(opts, "scatter")
        parts: Any = []
        rows: Optional[torch.Tensor] = None
        if opts.rootRank == self._caller.rank:
            parts = _one(inputs, "scatter") if not isinstance(inputs[0], torch.Tensor) else inputs
            _moving.check_parts(self._caller, "scatter", output, parts, "inputs")
            rows = torch.stack([part.detach().reshape(-1) for part in parts])
        result = _tensor_bytes.memory_of(output)

        def after() -> None:
            if result is not output:
                _tensors.copy(output, result)

        return self._caller.call(
            "scatter", Op.SCATTER, rows, result, [output], opts, after, parts, keep=output, root=root, like=output
        )

    def barrier(self, opts: Any = None, *more: Any) -> Any:
        """Implements torch.distributed.barrier."""
        device = getattr(opts, "device", None)
        for own, backend in self._devices.items():
            if device is not None and own.type == device.type:
                return backend.barrier(opts)
        return self._caller.call("barrier", Op.BARRIER, None, None, [], opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Waits for all ranks through the store; the error on rank 0 names the missing ranks."""
        seconds = (
            self._caller.seconds
            if timeout is None
            else (timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout))
        )
        _monitored.wait(
            self._store, next(self._barriers), self._caller.rank, self._caller.size, seconds, wait_all_ranks
        )

    # ---- messages ----

    def send(self, tensors: Any, to: int, tag: int = 0) -> Any:
        """Implements torch.distributed.isend."""
        tensor = _one(tensors, "send")
        if self._elsewhere(tensor):
            return super().send(tensors, to, tag)
        return self._keep(self._messages.send(tensor, to, tag, self._caller.seconds), "send")

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Any:
        """Implements torch.distributed.irecv."""
        tensor = _one(tensors, "recv")
        if self._elsewhere(tensor):
            return super().recv(tensors, source, tag)
        return self._keep(self._messages.receive(tensor, source, tag, self._caller.seconds), "recv")

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Implements torch.distributed.irecv from any rank."""
        tensor = _one(tensors, "recv")
        if self._elsewhere(tensor):
            return super().recv_anysource(tensors, tag)
        return self._keep(self._messages.receive(tensor, None, tag, self._caller.seconds), "recvAnySource")

    def _keep(self, work: Work, what: str) -> Work:
        return self._caller.note_running(work, what, work.result())

    # torch 1.13 passes no device, and keeps the works itself.
    def _start_coalescing(self, device: Any = None) -> Any:
        if self._is_of_another(device):
            return super()._start_coalescing(device)
        self._caller.coalesced = None if device is None else []

    def _end_coalescing(self, device_or_works: Any = None, *more: Any) -> Any:
        if self._is_of_another(device_or_works):
            return super()._end_coalescing(device_or_works, *more)
        works, self._caller.coalesced = self._caller.coalesced, None
        return Several(works) if works is not None else None


_groups: Any = weakref.WeakSet()  # the groups of this process


def _complete_calls(pid: int) -> None:
    """Completes the calls of all groups at exit, because other ranks may wait for them. Skips this after an exception,
    because other ranks may not call."""
    if os.getpid() == pid and not hasattr(sys, "last_type"):
        until = time.monotonic() + _SECONDS_AT_EXIT
        for group in list(_groups):
            group.complete_calls(min(group._caller.seconds, max(until - time.monotonic(), 0.001)))


def _end(place: _ranks.Place) -> None:
    # The default group ends the runtime that it has started, so that the other ranks see that this rank has left the
    # job.
    if not (place.is_default and _ranks.end()):
        _ranks.leave(place)
