"""Messages between two ranks: send and recv. Other ranks take no part, and messages need no name."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch

from horovod import _frontend, _ops
from horovod.process_sets import ProcessSet, global_process_set, id_of
from horovod.torch import _devices, _tensors


def send_async(
    tensor: torch.Tensor,
    rank: int,
    tag: int = 0,
    process_set: ProcessSet = global_process_set,
    timeout: Optional[float] = None,
) -> int:
    """Starts `send` and returns a handle."""
    dense = _dense(tensor, "send")
    return _ops.send(
        _tensors.describe(dense, dense),
        *_whole("send", rank, tag),
        id_of(process_set),
        _seconds("send", timeout),
        keep=dense,
    )


def send(
    tensor: torch.Tensor,
    rank: int,
    tag: int = 0,
    process_set: ProcessSet = global_process_set,
    timeout: Optional[float] = None,
) -> None:
    """Sends `tensor` to the `rank` of the job, which must call `recv` with the same tag and process set.

    Returns when the caller may change `tensor`: a small tensor is then in transfer, and a large tensor has been
    received. Two ranks that both send a large tensor before they receive would wait for each other: use `send_async`.
    Messages of one rank with one tag are received in the order of their sends. `timeout`: seconds after which
    HorovodInternalError is raised unless the receiver has called `recv` by then; None waits without a limit.
    """
    return _ops.run(send_async(tensor, rank, tag, process_set, timeout))


def recv_async(
    tensor: torch.Tensor,
    rank: Optional[int] = None,
    tag: int = 0,
    process_set: ProcessSet = global_process_set,
    timeout: Optional[float] = None,
) -> int:
    """Starts `recv` and returns a handle; the result is the sender's rank."""
    dense = _dense(tensor, "recv")
    target = dense if dense is tensor else _tensors.empty_like(dense)

    def finish() -> None:
        if target is not tensor:
            _tensors.copy(tensor, target)

    source, number = _whole("recv", _ops.ANY_RANK if rank is None else rank, tag)
    return _ops.recv(
        _tensors.describe(target, target),
        source,
        number,
        id_of(process_set),
        _seconds("recv", timeout),
        keep=(tensor, target),
        finish=finish,
    )


def recv(
    tensor: torch.Tensor,
    rank: Optional[int] = None,
    tag: int = 0,
    process_set: ProcessSet = global_process_set,
    timeout: Optional[float] = None,
) -> int:
    """Receives into `tensor` a message of the `rank` of the job (None: any rank) with the same tag and process set.
    Returns the sender's rank.

    Raises ValueError unless both tensors have the same dtype and number of elements. `timeout`: see `send`.
    """
    return _ops.run(recv_async(tensor, rank, tag, process_set, timeout))


def _dense(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """Returns the tensor, or a dense copy of it in host memory."""
    _tensors.check_kind(tensor, what)
    if _devices.of([tensor], what) is not None:
        tensor = tensor.detach().cpu()
    _tensors.check(tensor, what)
    return _tensors.dense(tensor)


def _whole(what: str, rank: Any, tag: Any) -> Tuple[int, int]:
    return (
        _frontend.whole(rank, f"{what}: rank", "the number of a rank"),
        _frontend.whole(tag, f"{what}: tag", "a whole number"),
    )


def _seconds(what: str, timeout: Any) -> float:
    if timeout is None:
        return 0.0
    if not hasattr(timeout, "__float__") or not float(timeout) > 0:
        raise ValueError(f"{what}: timeout is {timeout!r}; give seconds above 0, or None for no limit.")
    return float(timeout)
