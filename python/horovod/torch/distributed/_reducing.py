"""The collectives of a group that reduce tensors."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import torch

from horovod import _ops
from horovod._ops import Kind
from horovod.exceptions import HorovodArgumentError
from horovod.torch import _tensors
from horovod.torch.distributed import _calls, _moving, _reductions, _tensor_bytes, _tensor_memory
from horovod.torch.distributed._caller import Caller
from horovod.torch.distributed._calls import Op
from horovod.torch.distributed._reductions import ONE, Reduction
from horovod.torch.distributed._work import Compared, Several, Work

Tensors = Sequence[torch.Tensor]

# The result is built from parts of valid tensors of one shape, so its invariants need no check.
_UNCHECKED = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}


def reduce_now(caller: Caller, tensor: torch.Tensor, reduction: Reduction, opts: Any) -> Optional[Work]:
    """Runs a call with an immediate wait, without a work object. Returns None for other calls."""
    seconds = caller.time(opts)
    if caller.postponed.waiting:
        caller.postponed.start()
    try:
        handle = _calls.reduce_now(caller.place.group, reduction.op, tensor, seconds)
    except HorovodArgumentError:  # the runtime refused the call: the call's number stays unused
        raise
    except BaseException:
        next(caller.numbers)
        _tensor_memory.forget()
        raise
    if handle is False:
        return None
    number = next(caller.numbers)
    if handle is None:
        return caller.nothing_to_wait_for
    work = caller.record(number, "all_reduce", [handle], [tensor], opts)
    work._complete(seconds, has_waited=True)
    return work


def reduce_bucket(caller: Caller, bucket: torch.Tensor, reduction: Reduction, opts: Any) -> Work:
    """Reduces a dense tensor for C++ code in a backward pass."""
    _reductions.check(bucket, reduction)
    if not caller.postponed.may_take(bucket):
        return caller.call(
            "all_reduce", Op.ALLREDUCE, bucket, bucket, [bucket], opts, keep=bucket, reduce_op=reduction.op
        )
    words = ("all_reduce", "as call", next(caller.numbers), "of group", caller.place.label)
    work = caller.postponed.add(words, caller.place.group, reduction.op, bucket, caller.time(opts))
    return caller.note(work, "all_reduce", [bucket])


def reduce_in_place(caller: Caller, what: str, tensors: Tensors, reduction: Reduction, opts: Any) -> Work:
    for tensor in tensors:
        _reductions.check(tensor, reduction)
    if len(tensors) != 1 and not _tensor_bytes.have_one_dtype(tensors):
        return Several([reduce_in_place(caller, what, [tensor], reduction, opts) for tensor in tensors])
    dense = _tensors.dense(tensors[0]) if len(tensors) == 1 else _tensor_bytes.flat(tensors)
    dense, reduction = reduction.apply(dense)

    def after() -> None:
        if dense is not tensors[0]:
            _tensor_bytes.spread(dense, tensors)

    return caller.call(
        what,
        Op.ALLREDUCE,
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


def fold_all(caller: Caller, tensor: torch.Tensor, reduction: Reduction, opts: Any) -> Work:
    """Runs a reduction that the runtime lacks: each rank gets the inputs of all ranks."""
    _reductions.check(tensor, reduction)
    dense = _tensors.dense(tensor)
    rows = torch.empty((caller.size, *tensor.shape), dtype=tensor.dtype)

    def after() -> None:
        _tensors.copy(tensor, reduction.reduce(list(rows.unbind(0))))

    return caller.call("all_reduce", Op.ALLGATHER, dense, rows, [tensor], opts, after, keep=tensor, tag=reduction.tag)


def sparse_allreduce(caller: Caller, tensor: torch.Tensor, reduction: Reduction, opts: Any) -> Work:
    if reduction.op != _ops.Sum or tensor.layout is not torch.sparse_coo:
        raise RuntimeError("horovod: sparse tensors are reduced by ReduceOp.SUM only, and in the layout sparse_coo")
    if isinstance(reduction.factor, torch.Tensor) and reduction.factor.numel() != 1:
        raise RuntimeError("horovod: the factor of sparse tensors must be one number")
    tensor = tensor.detach() if tensor.requires_grad else tensor
    found = tensor.coalesce()
    indices, values = found.indices().t().contiguous(), found.values().contiguous()
    if reduction.factor is not ONE:
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

    # The ranks have different numbers of values. After a barrier has compared the calls, the ranks gather the values
    # under a name. An empty tensor has the shape of the sparse tensors, so that the ranks compare the shape.
    def gather() -> Any:
        return _ops.submit(
            Kind.ALLGATHER,
            f"torch.{caller.name}.sparse.{number}",
            [*(_tensor_bytes.describe(one, one.shape) for one in (indices, values)), shape],
            keep=(tensor, indices, values),
            finish=take,
            process_set=caller.place.process_set,
        )

    shape = _ops.Tensor(0, 0, int(_ops.Dtype.UINT8), (0, *tensor.shape))
    caller.postponed.start()
    barrier = _calls.submit(caller.place.group, Op.BARRIER, None, 0, None, None, 0, tag=_calls.SPARSE)
    number = next(caller.numbers)
    what = "sparse_all_reduce"
    label = (what, "as call", number, "of group", caller.place.label)
    work = Compared(label, barrier, gather, [tensor], caller.time(opts), after)
    caller.note(work, what, [tensor])
    return work.run()


def fold_at(
    caller: Caller, root: int, tensor: torch.Tensor, dense: torch.Tensor, reduction: Reduction, opts: Any
) -> Work:
    """Runs a reduction that the runtime lacks: the root gets the inputs of all ranks."""
    is_root = root == caller.place.ranks[caller.rank]
    rows = torch.empty((caller.size, *tensor.shape), dtype=tensor.dtype) if is_root else None

    def after() -> None:
        if rows is not None:
            _tensors.copy(tensor, reduction.reduce(list(rows.unbind(0))))

    return caller.call(
        "reduce", Op.GATHER, dense, rows, [tensor], opts, after, keep=tensor, root=root, tag=reduction.tag
    )


def scatter_rows(caller: Caller, what: str, outputs: Tensors, inputs: Tensors, reduction: Reduction, opts: Any) -> Work:
    """Reduces and scatters dense tensors with one row per rank."""
    for output, rows in zip(outputs, inputs):
        if output.numel() * caller.size != rows.numel() or output.dtype != rows.dtype:
            raise ValueError(
                f"horovod: {what}: the input must have {caller.size} times the elements of the output, and its dtype"
            )
        _reductions.check(rows, reduction)
    if len(inputs) != 1 and (reduction.fold is not None or not _tensor_bytes.have_one_dtype(inputs)):
        works = [scatter_rows(caller, what, [one], [rows], reduction, opts) for one, rows in zip(outputs, inputs)]
        return Several(works)
    if reduction.fold is not None:
        return fold_rows(caller, what, outputs[0], inputs[0], reduction, opts)
    whole = inputs[0] if len(inputs) == 1 else torch.cat(list(inputs), dim=1)
    whole, reduction = reduction.apply(whole)
    count = whole.numel() // caller.size
    is_direct = len(outputs) == 1 and _tensor_bytes.takes_values(outputs[0], whole)
    result = outputs[0] if is_direct else torch.empty(count, dtype=whole.dtype)

    def after() -> None:
        if not is_direct:
            _tensor_bytes.spread(result, outputs)

    return caller.call(
        what,
        Op.REDUCESCATTER,
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
        elements=count,
    )


def fold_rows(
    caller: Caller, what: str, output: torch.Tensor, rows: torch.Tensor, reduction: Reduction, opts: Any
) -> Work:
    received = torch.empty_like(rows)

    def after() -> None:
        _tensors.copy(output, reduction.reduce(list(received.unbind(0))).reshape(output.shape))

    each = [rows.shape[1]] * caller.size
    return _moving.exchange(caller, what, rows, each, [received], each, [output], opts, after, tag=reduction.tag)
