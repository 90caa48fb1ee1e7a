"""Process sets: which ranks take part in an operation.

This release has the one set of all ranks, `global_process_set`.
"""

from __future__ import annotations

from typing import Any, Iterable, Optional, Union

from horovod import _basics
from horovod.exceptions import HorovodUnimplementedError


class ProcessSet:
    """A set of global ranks; usable once it is registered, which only the global set is."""

    process_set_id: Optional[int] = None

    def __init__(self, ranks: Union[Iterable[int], Any]) -> None:
        """`ranks`: the global ranks of the members."""
        self._ranks: Optional[list[int]] = sorted(int(rank) for rank in ranks)

    @property
    def ranks(self) -> Optional[list[int]]:
        """Global ranks of the members, ascending."""
        return self._ranks

    def size(self) -> int:
        """Number of members. ValueError unless Horovod is initialised and the set registered."""
        self._require_registered()
        return _basics.size()

    def rank(self) -> int:
        """This process's rank within the set. ValueError as for `size`."""
        self._require_registered()
        return _basics.rank()

    def included(self) -> bool:
        """Whether this process is a member. ValueError as for `size`."""
        self._require_registered()
        return True

    def _require_registered(self) -> None:
        if self.process_set_id is None:
            raise ValueError(f"{self} is not registered.")

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _GlobalProcessSet(ProcessSet):
    process_set_id = 0

    def __init__(self) -> None:
        self._ranks = None

    @property
    def ranks(self) -> Optional[list[int]]:
        return list(range(_basics.size())) if _basics.is_initialized() else None


global_process_set: ProcessSet = _GlobalProcessSet()


def add_process_set(process_set: Union[ProcessSet, Iterable[int]]) -> ProcessSet:
    """Registers a set on all ranks. This release raises HorovodUnimplementedError."""
    raise HorovodUnimplementedError(
        "This release of Horovod has no process sets beside the one of all ranks: leave "
        "process_set out, or pass hvd.global_process_set."
    )


def remove_process_set(process_set: ProcessSet) -> bool:
    """Unregisters a set on all ranks; False for one that cannot go: the global one, or one that
    is not registered."""
    return False


def id_of(process_set: ProcessSet) -> int:
    """The number by which the runtime knows the set."""
    if process_set is global_process_set:
        return 0
    add_process_set(process_set)
    return -1


global_process_set.__doc__ = "The process set of all ranks."
