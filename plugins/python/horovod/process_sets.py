"""Process sets: groups of ranks with their own collectives.

Every rank of the job, member or not, adds and removes the same sets in the same order. Only members
submit work to a set.
"""

from __future__ import annotations

import ctypes
import operator
from typing import Any, Iterable, List, Optional, Union

from horovod import _identity, _ops
from horovod._library import library


class ProcessSet:
    """A set of ranks of the job. Usable after `hvd.init` or `hvd.add_process_set` has added it."""

    process_set_id: Optional[int] = None
    mpi_comm: None = None  # for existing scripts: a set keeps the ranks of a communicator alone

    def __init__(self, ranks_or_comm: Union[Iterable[int], Any, None] = None, *,
                 ranks: Optional[Iterable[int]] = None) -> None:
        """`ranks_or_comm`: the global ranks of the members, or a communicator of mpi4py that has them;
        also accepted as `ranks`. ValueError for what is no number."""
        if (ranks_or_comm is None) == (ranks is None):
            raise TypeError("ProcessSet: give ranks_or_comm, the ranks of its members.")
        self._ranks: Optional[List[int]] = _members(ranks_or_comm if ranks is None else ranks)

    @property
    def ranks(self) -> Optional[List[int]]:
        """The members as ranks of the job, ascending."""
        return self._ranks

    @ranks.setter
    def ranks(self, ranks: Union[Iterable[int], Any]) -> None:
        """Sets the members. ValueError once the set is added."""
        if self.process_set_id is not None:
            raise ValueError(f"{self} is registered, so its ranks do not change; make another ProcessSet.")
        self._ranks = _members(ranks)

    def size(self) -> int:
        """The number of members. ValueError unless Horovod is initialised and the set was added."""
        return self._ask("hvd_process_set_size")

    def rank(self) -> int:
        """The rank of this process within the set. ValueError as for `size`, and when it is not a
        member."""
        return self._ask("hvd_process_set_rank")

    def included(self) -> bool:
        """Whether this process is a member. ValueError as for `size`."""
        return self._ask("hvd_process_set_included") != 0

    def _ask(self, function: str) -> int:
        if self.process_set_id is None:
            raise ValueError(f"{self} is not registered; hvd.add_process_set does that.")
        _identity.rank()  # ValueError when not initialised
        return _ops.ask(function, self.process_set_id)

    def __eq__(self, other: Any) -> bool:
        return (isinstance(other, ProcessSet) and self.ranks == other.ranks
                and self.process_set_id == other.process_set_id)

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


def _members(ranks: Union[Iterable[int], Any]) -> List[int]:
    if hasattr(ranks, "Get_group"):
        ranks = _identity.ranks_of_communicator(ranks)
    try:
        return sorted(operator.index(rank) for rank in ranks)
    except TypeError:
        raise ValueError(f"A process set is made of the numbers of its ranks, not of {ranks!r}."
                         ) from None


class _GlobalProcessSet(ProcessSet):
    process_set_id = 0

    def __init__(self) -> None:
        self._ranks = None

    @property
    def ranks(self) -> Optional[List[int]]:
        return list(range(_identity.size())) if _identity.is_initialized() else None

    @ranks.setter
    def ranks(self, ranks: Union[Iterable[int], Any]) -> None:
        raise ValueError("The process set of all ranks has all ranks; make another ProcessSet.")


global_process_set: ProcessSet = _GlobalProcessSet()
global_process_set.__doc__ = "The process set of all ranks."

# Registered sets besides the global one. They end with the runtime.
_registered: List[ProcessSet] = []


def add_process_set(process_set: Union[ProcessSet, Iterable[int]]) -> ProcessSet:
    """Adds a set, given as a ProcessSet or by its ranks, and returns it. All ranks must call it.

    Raises ValueError on every rank for ranks that the job does not have, for a set that exists already,
    and when ranks add different sets.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} is registered already.")
    _identity.rank()  # ValueError when not initialised
    members = process_set.ranks or []
    ranks = (ctypes.c_int32 * len(members))(*members)
    handle = _ops.adopt(
        library().hvd_add_process_set, ctypes.addressof(ranks), len(ranks),
        finish=lambda handle: _ops.output(handle).process_set,
    )
    note_registered(process_set, _ops.run(handle))
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set. All ranks must call it. Completes the set's work first.

    Returns False for a set that cannot be removed: the set of all ranks, or one that was not added.
    """
    if not isinstance(process_set, ProcessSet):
        raise ValueError(_not_a_set(process_set))
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    _ops.complete_delayed()
    handle = _ops.adopt(library().hvd_remove_process_set, process_set.process_set_id,
                        finish=lambda handle: None)
    _ops.run(handle)
    _registered.remove(process_set)
    process_set.process_set_id = None
    return True


def note_registered(process_set: ProcessSet, number: int) -> None:
    """Records the id that the runtime has given to the set."""
    _ops.forget_names(number)
    process_set.process_set_id = number
    _registered.append(process_set)


def forget_all() -> None:
    """Marks all sets as not added, after the runtime has ended."""
    while _registered:
        _registered.pop().process_set_id = None


def registered(number: int) -> ProcessSet:
    """Returns the set of an id. ValueError when no set has it."""
    for process_set in [global_process_set, *_registered]:
        if process_set.process_set_id == number:
            return process_set
    raise ValueError(f"No process set has the id {number}; hvd.add_process_set gives ids.")


def _not_a_set(found: Any) -> str:
    return (f"process_set is {found!r}, a {type(found).__name__}; give what hvd.add_process_set "
            "returns.")


def id_of(process_set: ProcessSet) -> int:
    """The runtime's id of the set. ValueError when the set was not added."""
    if not isinstance(process_set, ProcessSet):
        raise ValueError(_not_a_set(process_set))
    number = process_set.process_set_id
    if number is None:
        raise ValueError(f"{process_set} is not registered; hvd.add_process_set does that.")
    return number
