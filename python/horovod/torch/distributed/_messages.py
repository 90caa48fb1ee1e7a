"""Messages between two ranks of a group: what send, recv and recv_anysource need."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any, Dict, Optional, Tuple

import torch

from horovod.torch.distributed import _tensor_bytes
from horovod.torch.distributed._work import Work


class Messages:
    """The messages of one group, by its store."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._sent: Dict[Tuple[int, int], Any] = {}  # by receiver and tag
        self._taken: Dict[Tuple[int, int], int] = {}  # by sender and tag: the number of messages
        self._lock = threading.Lock()

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> None:
        """Sends the values that the tensor has now."""
        number = next(self._sent.setdefault((to, tag), itertools.count()))
        kind = f"{tensor.dtype} {tensor.numel()}"
        self._store.set(self._key(self._rank, to, tag, number), kind.encode() + b"\n" + _tensor_bytes.read(tensor))
        self._store.add(self._count(self._rank, to, tag), 1)

    def is_there(self, source: Optional[int], tag: int) -> Optional[int]:
        """Returns a rank whose next message is there, if there is one."""
        for rank in [source] if source is not None else range(self._size):
            # A wait that ends by its time breaks the connection to torch 1.13's store.
            if rank != self._rank and self._store.add(self._count(rank, self._rank, tag), 0) > self._taken.get(
                (rank, tag), 0
            ):
                return rank
        return None

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> None:
        """Takes the next message of the rank, which is there."""
        with self._lock:
            key = self._key(source, self._rank, tag, self._taken.get((source, tag), 0))
            self._taken[source, tag] = self._taken.get((source, tag), 0) + 1
        kind, _, data = bytes(self._store.get(key)).partition(b"\n")
        wanted = f"{tensor.dtype} {tensor.numel()}"
        if kind.decode() != wanted:
            raise RuntimeError(
                f"horovod: rank {source} sent {kind.decode()} elements with tag {tag}, and rank "
                f"{self._rank} receives {wanted}"
            )
        _tensor_bytes.write(tensor, data)

    @staticmethod
    def _count(source: int, to: int, tag: int) -> str:
        return f"messages {source} {to} {tag}"

    @staticmethod
    def _key(source: int, to: int, tag: int, number: int) -> str:
        return f"message {source} {to} {tag} {number}"


class Receive(Work):
    """A receive, which takes the message when it is waited for."""

    def __init__(
        self, messages: Messages, tensor: torch.Tensor, source: Optional[int], tag: int, seconds: float
    ) -> None:
        super().__init__(
            f"a message with tag {tag} from {'any rank' if source is None else f'rank {source}'}",
            [(source, tag)],
            [tensor],
            seconds,
        )
        self._messages, self._tensor = messages, tensor
        self._source: Optional[int] = source

    def _wait_some(self, seconds: float) -> None:
        source, tag = self._handles[-1]
        until = time.monotonic() + seconds
        while True:
            found = self._messages.is_there(source, tag)
            if found is not None:
                break
            if time.monotonic() >= until:
                raise TimeoutError
            time.sleep(0.0005)
        self._source = found
        self._messages.receive(self._tensor, found, tag)
        self._handles.pop()

    def _poll(self, handle: Any) -> bool:
        return self._messages.is_there(*handle) is not None

    def _abandon(self, handle: Any) -> None:
        pass

    def source_rank(self) -> int:
        return -1 if self._source is None else self._source

    _source_rank = source_rank
