"""Messages between two ranks of a group, for send, recv and recv_anysource."""

from __future__ import annotations

from typing import Any, List, Optional

import torch

from horovod import _native, _ops
from horovod.torch import _tensors
from horovod.torch.distributed import _failure, _open_works, _ranks, _tensor_bytes
from horovod.torch.distributed._work import Work


def _check_tag(tag: int) -> None:
    if tag == _failure.TAG:
        raise ValueError(f"horovod: the tag {tag} is in use by the backend; take another one for this message")


class Messages:
    """The messages of one group."""

    def __init__(self, place: _ranks.Place) -> None:
        self._place = place
        self._works = _open_works.OpenWorks()

    def send(self, tensor: torch.Tensor, to: int, tag: int, seconds: float) -> Work:
        """Starts to send to a rank of the group."""
        _check_tag(tag)
        rank = self._place.rank_of(to, "send: the other rank")
        dense = _tensors.dense(tensor)
        handle = _ops.send(
            _tensor_bytes.describe_message(dense),
            rank,
            tag,
            self._place.process_set,
            0.0,
            keep=dense,
        )
        return self._keep(Work(("the message with tag", tag, "to rank", to), [handle], [tensor], seconds))

    def receive(self, tensor: torch.Tensor, source: Optional[int], tag: int, seconds: float) -> Work:
        """Starts to receive from a rank of the group, or from any rank."""
        _check_tag(tag)
        rank = _ops.ANY_RANK if source is None else self._place.rank_of(source, "recv: the other rank")
        target = tensor if _tensor_bytes.is_plain(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)

        def finish() -> None:
            if target is not tensor:
                _tensors.copy(tensor, target)

        handle = _ops.recv(
            _tensor_bytes.describe_message(target),
            rank,
            tag,
            self._place.process_set,
            0.0,
            keep=(tensor, target),
            finish=finish,
        )
        return self._keep(Receive(self._place, handle, tensor, source, tag, seconds))

    def sends(self) -> List[Work]:
        """Returns the sends that are not complete."""
        return [work for work in self._works.all() if not isinstance(work, Receive)]

    def _keep(self, work: Work) -> Work:
        self._works.add(work)
        return work


class Receive(Work):
    """A receive, which knows its sender once it is complete."""

    def __init__(
        self, place: _ranks.Place, handle: int, tensor: torch.Tensor, source: Optional[int], tag: int, seconds: float
    ) -> None:
        who = "any rank" if source is None else f"rank {source}"
        super().__init__(("the message with tag", tag, "from", who), [handle], [tensor], seconds)
        self._place = place
        self._source = -1 if source is None else source

    def _wait_some(self, seconds: float) -> None:
        rank: Any = _native.wait_for(self._handles[-1], seconds)
        self._source = self._place.ranks.index(rank)
        self._handles.pop()

    def source_rank(self) -> int:
        """Returns the rank of the group that has sent the message."""
        return self._source

    _source_rank = source_rank
