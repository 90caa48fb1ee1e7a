"""The collectives of a group that move tensors between ranks."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import torch

from horovod.torch import _tensors
from horovod.torch.distributed import _calls, _tensor_bytes
from horovod.torch.distributed._caller import Caller
from horovod.torch.distributed._calls import Op
from horovod.torch.distributed._work import Several, Work

Tensors = Sequence[torch.Tensor]


def check_parts(caller: Caller, what: str, tensor: torch.Tensor, targets: Tensors, kind: str = "outputs") -> None:
    if len(targets) != caller.size:
        raise ValueError(f"horovod: {what}: there are {len(targets)} {kind} for {caller.size} ranks")
    for target in targets:
        if target.numel() != tensor.numel() or target.dtype != tensor.dtype:
            raise ValueError(
                f"horovod: {what}: invalid tensor size: an output of shape {list(target.shape)} and "
                f"{target.dtype} for inputs of shape {list(tensor.shape)} and {tensor.dtype}"
            )


def gather(caller: Caller, targets: List[Tensors], inputs: Tensors, what: str, outputs: Any, opts: Any) -> Work:
    """Gathers each input from all ranks into targets that hold the ranks' parts one after another."""
    if len(inputs) != len(targets):
        raise ValueError(f"horovod: {what}: there are {len(inputs)} inputs and {len(targets)} outputs")
    for tensor, many in zip(inputs, targets):
        if sum(target.numel() for target in many) != tensor.numel() * caller.size or any(
            target.dtype != tensor.dtype for target in many
        ):
            raise ValueError(
                f"horovod: {what}: the outputs must have the dtype of the input, {tensor.dtype}, and its "
                f"{tensor.numel()} elements for each of the {caller.size} ranks"
            )
    if len(inputs) != 1 and not _tensor_bytes.have_one_dtype(inputs):
        works = [gather(caller, [many], [tensor], what, list(many), opts) for many, tensor in zip(targets, inputs)]
        return Several(works)
    dense = _tensors.dense(inputs[0]) if len(inputs) == 1 else _tensor_bytes.flat(inputs)
    is_direct = len(inputs) == 1 and len(targets[0]) == 1 and takes_rows(caller, targets[0][0], dense)
    rows = targets[0][0] if is_direct else torch.empty((caller.size, dense.numel()), dtype=dense.dtype)

    def after() -> None:
        if is_direct:
            return
        for part, many in zip(rows.split([tensor.numel() for tensor in inputs], dim=1), targets):
            _tensor_bytes.spread(part.reshape(-1), many)

    return caller.call(
        what,
        Op.ALLGATHER,
        dense,
        rows,
        outputs,
        opts,
        after,
        list(inputs),
        keep=(inputs, targets),
        tag=_calls.tag_of_sizes(inputs),
    )


def takes_rows(caller: Caller, target: torch.Tensor, row: torch.Tensor) -> bool:
    """Returns whether the ranks' rows may be written into the target, even if `row` lies at its place in the target."""
    own = target.data_ptr() + caller.rank * _tensor_bytes.size_of(row)
    return _tensor_bytes.is_plain(target) and (row.data_ptr() == own or not _tensor_bytes.overlap(target, row))


def in_rows(caller: Caller, tensor: torch.Tensor, what: str) -> torch.Tensor:
    if tensor.numel() % caller.size:
        raise ValueError(f"horovod: {what}: {tensor.numel()} elements do not divide by {caller.size} ranks")
    return _tensors.dense(tensor.detach()).reshape(caller.size, -1)


def exchange(
    caller: Caller,
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
    """Sends elements to each rank. `expected`: the number of elements from each rank, which follow each other in the
    targets."""
    is_direct = len(targets) == 1 and _tensor_bytes.takes_values(targets[0], source)
    received = targets[0] if is_direct else torch.empty(sum(expected), dtype=source.dtype)

    def finish() -> None:
        if not is_direct:
            _tensor_bytes.spread(received, targets)
        if after is not None:
            after()

    return caller.call(
        what,
        Op.ALLTOALL,
        source,
        received,
        outputs,
        opts,
        finish,
        [source] if inputs is None else inputs,
        keep=targets,
        counts=[*sent, *expected],
        tag=tag,
        elements=0,
    )


def splits(caller: Caller, what: str, tensor: torch.Tensor, splits: Sequence[int]) -> List[int]:
    """Returns the number of elements for each rank. `splits`: numbers of rows."""
    rows = tensor.shape[0] if tensor.dim() else 1
    row = tensor.numel() // rows if rows else 0
    if not splits:
        if rows % caller.size:
            raise RuntimeError(
                f"horovod: {what}: Tensor's dim 0 does not divide equally across group size: {rows} "
                f"rows for {caller.size} ranks"
            )
        return [rows // caller.size * row] * caller.size
    if len(splits) != caller.size:
        raise RuntimeError(
            f"horovod: {what}: Number of tensor splits not equal to group size: {list(splits)} for {caller.size} ranks"
        )
    if sum(splits) != rows:
        raise RuntimeError(
            f"horovod: {what}: Split sizes doesn't match total dim 0 size: {list(splits)} for {rows} rows"
        )
    return [split * row for split in splits]
