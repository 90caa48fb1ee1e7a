"""Process sets: which ranks take part in an operation.

Every rank of the job registers and removes the same sets in the same order, members or not; what
members then do in a set concerns nobody else.
"""

from __future__ import annotations

import ctypes
import operator
from typing import Any, Iterable, List, Optional, Union

from horovod import _identity, _ops
from horovod._library import library


class ProcessSet:
    """A set of global ranks; usable once `hvd.init` or `hvd.add_process_set` has registered it."""

    process_set_id: Optional[int] = None

    def __init__(self, ranks: Union[Iterable[int], Any]) -> None:
        """`ranks`: the global ranks of the members, or a communicator of mpi4py that has them.
        ValueError for what is no number."""
        if hasattr(ranks, "Get_group"):
            ranks = _identity.ranks_of_communicator(ranks)
        try:
            self._ranks: Optional[List[int]] = sorted(operator.index(rank) for rank in ranks)
        except TypeError:
            raise ValueError(f"A process set is made of the numbers of its ranks, not of {ranks!r}."
                             ) from None

    @property
    def ranks(self) -> Optional[List[int]]:
        """Global ranks of the members, ascending."""
        return self._ranks

    def size(self) -> int:
        """Number of members. ValueError unless Horovod is initialised and the set registered."""
        return self._ask("hvd_process_set_size")

    def rank(self) -> int:
        """This process's rank within the set. ValueError as for `size`, and unless a member."""
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


class _GlobalProcessSet(ProcessSet):
    process_set_id = 0

    def __init__(self) -> None:
        self._ranks = None

    @property
    def ranks(self) -> Optional[List[int]]:
        return list(range(_identity.size())) if _identity.is_initialized() else None


global_process_set: ProcessSet = _GlobalProcessSet()
global_process_set.__doc__ = "The process set of all ranks."

# Registered sets beside the global one: the runtime's end is theirs too.
_registered: List[ProcessSet] = []


def add_process_set(process_set: Union[ProcessSet, Iterable[int]]) -> ProcessSet:
    """Registers a set, given as such or by its ranks, and returns it. All ranks must call it.

    Raises ValueError, on every rank, for ranks that the job does not have, for a set that is
    registered already, and when ranks ask for different sets.
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
    """Ends a set's registration; all ranks must call it. Work in the set is completed first.

    False for a set that cannot go: the global one, or one that is not registered.
    """
    if not isinstance(process_set, ProcessSet):
        raise ValueError(_not_a_set(process_set))
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    handle = _ops.adopt(library().hvd_remove_process_set, process_set.process_set_id,
                        finish=lambda handle: None)
    _ops.run(handle)
    _registered.remove(process_set)
    process_set.process_set_id = None
    return True


def note_registered(process_set: ProcessSet, number: int) -> None:
    """The runtime knows the set under this number from now on."""
    _ops.forget_names(number)
    process_set.process_set_id = number
    _registered.append(process_set)


def forget_all() -> None:
    """After the runtime's end no set is registered."""
    while _registered:
        _registered.pop().process_set_id = None


def _not_a_set(found: Any) -> str:
    return (f"process_set is {found!r}, a {type(found).__name__}; give what hvd.add_process_set "
            "returns.")


def id_of(process_set: ProcessSet) -> int:
    """The number by which the runtime knows the set. ValueError when it knows none."""
    if not isinstance(process_set, ProcessSet):
        raise ValueError(_not_a_set(process_set))
    number = process_set.process_set_id
    if number is None:
        raise ValueError(f"{process_set} is not registered; hvd.add_process_set does that.")
    return number
