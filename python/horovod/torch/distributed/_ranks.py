"""The runtime's ranks for a group: starts the runtime with the first group, and adds process sets for further
groups."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import os
from typing import Any, List, NamedTuple, Optional

from horovod import _basics, _identity, _native, _ops
from horovod._library import library
from horovod.torch.distributed import _calls, _rendezvous


class Place(NamedTuple):
    """A group in terms of the runtime."""

    name: str
    label: str  # the group's name in errors, stall reports and timelines
    ranks: List[int]  # ranks of the job, by rank of the group
    process_set: int  # process set of the group's messages
    group: int  # runtime group of the collectives
    is_default: bool

    def rank_of(self, rank: int, what: str) -> int:
        """Returns the rank of the job. Raises ValueError about `what` for a rank outside the group."""
        if 0 <= rank < len(self.ranks):
            return self.ranks[rank]
        raise ValueError(
            f"horovod: {what} is {rank}, and the ranks of group {self.label} are 0 to {len(self.ranks) - 1}"
        )


class _State:
    owns_runtime = False  # a default group, not the program, has started the runtime
    has_left_job = False  # whether this process has left the job for a separate world


def join(
    store: Any, rank: int, size: int, ranks: List[int], name: str, label: str, timeout: datetime.timedelta
) -> Place:
    """Returns this rank's place in a new group. Blocks until all members have called it."""
    is_default = not ranks
    if is_default:
        _start(store, rank, size, timeout)
        everyone = list(range(size))
        return Place(name, label, everyone, 0, _calls.create(label, everyone), True)
    if not _identity.is_initialized():
        raise RuntimeError(
            "horovod: a group of some ranks needs a default group of the backend horovod before it, or hvd.init()"
        )
    if max(ranks) >= _identity.size() or ranks[rank] != _identity.rank():
        raise RuntimeError(
            f"horovod: the group has ranks {ranks}, and this is rank {_identity.rank()} of "
            f"{_identity.size()} of the job; make groups of the ranks of one job"
        )
    ascending = sorted(ranks)
    # Create the group first: even if a member then fails, all members have counted the same number of groups of these
    # ranks.
    group = _calls.create(label, ascending)
    try:
        process_set = _add_set(name, ascending, timeout)
    except BaseException:
        _calls.destroy(group)  # members that call the group get errors
        raise
    return Place(name, label, ranks, process_set, group, False)


def _add_set(name: str, ranks: List[int], timeout: datetime.timedelta) -> int:
    members = (ctypes.c_int32 * len(ranks))(*ranks)
    handle = _ops.adopt(
        library().hvd_add_named_process_set,
        f"torch {name}".encode(),
        ctypes.addressof(members),
        len(ranks),
        finish=lambda done: _ops.output(done).process_set,
    )
    try:
        number: int = _native.wait_for(handle, timeout.total_seconds())
    except TimeoutError:
        raise RuntimeError(
            f"horovod: Timed out waiting {timeout} for all of the ranks {ranks} to make the group {name}"
        ) from None
    _ops.forget(number)
    return number


def leave(place: Place) -> None:
    """Ends the group on this rank, without waiting for the other members. The group's process set ends when all members
    have left."""
    if not _identity.is_initialized():
        return
    with contextlib.suppress(Exception):  # the job may have ended
        _calls.destroy(place.group)
        if place.process_set:
            _native.abandon(_ops.adopt(library().hvd_remove_process_set, place.process_set, finish=lambda handle: None))


def _start(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
    if _State.owns_runtime and not _basics.was_asked_for():
        # The ranks may differ from the ranks of the previous group.
        end()
    if not _identity.is_initialized():
        rendezvous = _StoreRendezvous(store, rank, size)
        if _is_world_of_job(rendezvous):
            _basics.start_for_group(None)
        else:
            _forget_job()
            _basics.start_for_group(rendezvous)
        rendezvous.close()
        if "HOROVOD_STORE" in os.environ:
            os.environ[_RANK_PROCESS] = f"{os.getpid()} {os.environ['HOROVOD_STORE']}"
        _State.owns_runtime = True
    _rendezvous.end_with_runtime()
    if (_identity.rank(), _identity.size()) != (rank, size):
        raise RuntimeError(
            f"horovod: torch.distributed says that this is rank {rank} of {size}, and hvd.init() has made it rank "
            f"{_identity.rank()} of {_identity.size()}; give init_process_group rank=hvd.rank() and "
            "world_size=hvd.size(), or leave hvd.init() out"
        )


def end() -> bool:
    """Ends the runtime, unless the program has called hvd.init. Returns whether it ended the runtime."""
    if not _State.owns_runtime or _basics.was_asked_for():
        return False
    _State.owns_runtime = False
    with contextlib.suppress(Exception):  # the job may have failed; waiting callers have then received the cause
        _basics.shutdown()
    return True


# The process that is the rank, and the store of its job. Processes that the rank starts inherit this variable. If one
# of them launches another job, the ranks of that job have another store.
_RANK_PROCESS = "HOROVOD_TORCH_RANK_PROCESS"


def _is_of_our_launcher(rank: int, size: int) -> bool:
    place = (os.environ.get("HOROVOD_RANK"), os.environ.get("HOROVOD_SIZE"))
    process, _, store = os.environ.get(_RANK_PROCESS, "").partition(" ")
    is_child = store == os.environ["HOROVOD_STORE"] and process != str(os.getpid())
    return not is_child and (place == (str(rank), str(size)) or place == (None, None))


def _is_world_of_job(rendezvous: _StoreRendezvous) -> bool:
    """Returns whether the group is the world of our launcher's job, on all its ranks. Processes that a rank starts have
    a different world, as do ranks that each create their own world."""
    if "HOROVOD_STORE" not in os.environ:
        return _State.has_left_job and rendezvous.all_agree(False)
    is_mine = _is_of_our_launcher(rendezvous.rank, rendezvous.size)
    return rendezvous.all_agree(is_mine) if "HOROVOD_RANK" in os.environ else is_mine


def _forget_job() -> None:
    """Removes the variables that make this process a rank of the job."""
    _State.has_left_job |= "HOROVOD_STORE" in os.environ
    for name in ("STORE", "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "METRICS_PAGE"):
        os.environ.pop(f"HOROVOD_{name}", None)


class _StoreRendezvous:
    """Lets ranks find each other through torch's store."""

    _KEY = "horovod"

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._store = store

    def copy(self, text: Optional[bytes]) -> bytes:
        """Returns rank 0's text on all ranks."""
        if text is not None:
            self._store.set(self._KEY, text.decode())
            return text
        found: bytes = self._store.get(self._KEY)
        return found

    def all_agree(self, answer: bool) -> bool:
        """Returns whether the answer of all ranks is true. Raises RuntimeError on all of them if their numbers of ranks
        differ."""
        if self.rank:
            self._store.set(f"{self._KEY}/{self.rank}", f"{int(answer)} {self.size}")
        else:
            others = [self._store.get(f"{self._KEY}/{rank}").decode().split() for rank in range(1, self.size)]
            agreed = answer and all(other == "1" for other, _ in others)
            unlike = [f"{size} on rank {rank}" for rank, (_, size) in enumerate(others, 1) if int(size) != self.size]
            said = f"{self.size} on rank 0, {', '.join(unlike)}" if unlike else f"{int(agreed)} {self.size}"
            self._store.set(f"{self._KEY}/all", said)
        said = self._store.get(f"{self._KEY}/all").decode()
        agreed_by, _, size = said.partition(" ")
        if size == str(self.size):
            return agreed_by == "1"
        if size.isdigit():  # rank 0 has a smaller number of ranks, and has not contacted this rank
            said = f"{size} on rank 0, {self.size} on rank {self.rank}"
        if self.rank:
            self._store.set(f"{self._KEY}/{self.rank}/read", "")
        else:  # the store may end with this process
            with contextlib.suppress(Exception):
                read = [f"{self._KEY}/{rank}/read" for rank in range(1, self.size)]
                self._store.wait(read, datetime.timedelta(seconds=5))
        given = os.environ.get("HOROVOD_SIZE")
        raise RuntimeError(
            f"horovod: the ranks have different numbers of ranks: WORLD_SIZE, or world_size of init_process_group, is "
            f"{said}; " + (f"the launcher gave {given} to all: leave WORLD_SIZE as it is" if given else "give all one")
        )

    def close(self) -> None:
        """Deletes the keys, since another group may use the same keys of the store. Call it when all ranks have
        connected."""
        if self.rank == 0:
            with contextlib.suppress(Exception):  # not every store can delete keys
                for key in (self._KEY, f"{self._KEY}/all", *(f"{self._KEY}/{rank}" for rank in range(1, self.size))):
                    self._store.delete_key(key)
