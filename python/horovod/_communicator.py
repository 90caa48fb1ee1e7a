"""Lets the ranks of an mpi4py communicator find each other if another launcher than horovodrun started them."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Callable, List, Optional

from horovod.exceptions import HorovodArgumentError, HorovodInternalError

_TAG = 31417  # an unusual number, because the program may use other tags on the communicator
_QUIET_SECONDS = 60.0
_MOST_NAMES = 8


def finds_ranks(comm: Any, ranks: List[int]) -> bool:
    """Returns whether `init` finds the ranks by the communicator alone: the communicator is a part of MPI.COMM_WORLD,
    and a launcher of MPI started the ranks. Under `horovodrun`, the ranks use the launcher's store."""
    named = ("HOROVOD_RANK", "HOROVOD_STORE", "HOROVOD_GLOO_RENDEZVOUS_ADDR")
    return bool(ranks) and hasattr(comm, "Get_group") and not any(os.environ.get(name) for name in named)


def _init_seconds() -> float:
    text = os.environ.get("HOROVOD_INIT_TIMEOUT", "").strip() or "600"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 1e8:
        raise HorovodArgumentError(
            f"HOROVOD_INIT_TIMEOUT: {text!r} is not a number between 0.1 and 100000000; unset it for the default 600"
        )
    return seconds


class CommunicatorRendezvous:
    """Copies a text from rank 0 of a communicator to its other ranks, and names the ranks that do not respond. No other
    rank of MPI.COMM_WORLD takes part. Sends messages between two ranks, because a collective would not show which rank
    is missing."""

    def __init__(self, comm: Any, ranks: List[int]) -> None:
        """`ranks`: ranks in MPI.COMM_WORLD, in the order of `comm`."""
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._comm = comm
        self._ranks = ranks
        self._limit = _init_seconds()
        self._begin = time.monotonic()
        self._is_quiet = True

    def copy(self, text: Optional[bytes]) -> bytes:
        """Returns rank 0's text on all ranks. Raises HorovodInternalError after HOROVOD_INIT_TIMEOUT."""
        from mpi4py import MPI

        byte, status = MPI.BYTE, MPI.Status()
        if text is None:
            self._comm.Isend([b"", byte], 0, _TAG)
            self._wait(lambda: [] if self._comm.Iprobe(0, _TAG, status) else [0])
            found = bytearray(status.Get_count(byte))
            self._comm.Recv([found, byte], 0, _TAG)
            return bytes(found)
        missing = set(range(1, self.size))

        def look() -> List[int]:
            while self._comm.Iprobe(MPI.ANY_SOURCE, _TAG, status):
                self._comm.Recv([bytearray(), byte], status.Get_source(), _TAG)
                missing.discard(status.Get_source())
            return sorted(missing)

        self._wait(look)
        sent = [self._comm.Isend([text, byte], other, _TAG) for other in range(1, self.size)]
        self._wait(lambda: [] if MPI.Request.Testall(sent) else list(range(1, self.size)))
        return text

    def _wait(self, look: Callable[[], List[int]]) -> None:
        # MPI cannot wake a waiting thread, so the thread polls.
        pause = 50e-6
        quiet = min(_QUIET_SECONDS, self._limit / 2)
        while True:
            missing = look()
            if not missing:
                return
            waited = time.monotonic() - self._begin
            if waited >= self._limit:
                raise HorovodInternalError(
                    f"{self._names(missing)} not called hvd.init(comm) within {self._limit:g} s; all {self.size} ranks "
                    "of the communicator must, and HOROVOD_INIT_TIMEOUT may be raised"
                )
            if waited >= quiet and self._is_quiet:
                self._is_quiet = False
                sentence = f"{self._names(missing)} not called hvd.init(comm) for {quiet:.0f} s"
                print(f"horovod: {sentence}, and rank {self.rank} waits there", file=sys.stderr, flush=True)
            time.sleep(pause)
            pause = min(2 * pause, 5e-3)

    def _names(self, missing: List[int]) -> str:
        shown = [f"rank {rank} of comm (rank {self._ranks[rank]} of MPI.COMM_WORLD)" for rank in missing[:_MOST_NAMES]]
        if len(missing) > _MOST_NAMES:
            shown.append(f"{len(missing) - _MOST_NAMES} more")
        return f"{', '.join(shown)} {'has' if len(missing) == 1 else 'have'}"
