"""Process sets: groups of ranks with their own collectives.

Every rank of the job, member or not, adds and removes the same sets in the same order. Only members
submit work to a set.

After a change of the ranks (`hvd.elastic.run`), the sets of the job are registered again, in the same objects. A set
with missing ranks cannot be used until all its ranks are present.
"""

from __future__ import annotations

import ctypes
import itertools
import operator
import warnings
from typing import Any, Callable, Iterable, Iterator, List, Optional, Union

from horovod import _identity, _ops
from horovod._library import library


class ProcessSet:
    """A set of ranks of the job. Usable after `hvd.init` or `hvd.add_process_set` has added it."""

    process_set_id: Optional[int] = None
    _why_not = "is not registered; hvd.add_process_set does that"  # the reason while process_set_id is None
    mpi_comm: None = None  # for existing scripts: a set stores only the ranks of a communicator

    def __init__(
        self, ranks_or_comm: Union[Iterable[int], Any, None] = None, *, ranks: Optional[Iterable[int]] = None
    ) -> None:
        """`ranks_or_comm`: the global ranks of the members, or an mpi4py communicator of the members; `ranks` is
        another name for it. Raises ValueError for items that are not numbers."""
        if (ranks_or_comm is None) == (ranks is None):
            raise TypeError("ProcessSet: give ranks_or_comm, the ranks of its members.")
        self._ranks: Optional[List[int]] = _members(ranks_or_comm if ranks is None else ranks)

    @property
    def ranks(self) -> Optional[List[int]]:
        """The members as ranks of the job, ascending."""
        return self._ranks

    @ranks.setter
    def ranks(self, ranks: Union[Iterable[int], Any]) -> None:
        """Sets the members. Raises ValueError once the set is added."""
        if self.process_set_id is not None:
            raise ValueError(f"{self} is registered, so its ranks do not change; make another ProcessSet.")
        self._ranks = _members(ranks)

    def size(self) -> int:
        """Returns the number of members. Raises ValueError unless Horovod is initialised and the set was added."""
        return self._ask("hvd_process_set_size")

    def rank(self) -> int:
        """Returns the rank of this process within the set. Raises ValueError as for `size`, and when this process is
        not a member."""
        return self._ask("hvd_process_set_rank")

    def included(self) -> bool:
        """Returns whether this process is a member. Raises ValueError as for `size`."""
        return self._ask("hvd_process_set_included") != 0

    def _ask(self, function: str) -> int:
        if self.process_set_id is None:
            raise ValueError(f"{self} {self._why_not}.")
        _identity.rank()  # ValueError when not initialised
        return _ops.ask(function, self.process_set_id)

    def __eq__(self, other: Any) -> bool:
        return (
            isinstance(other, ProcessSet) and self.ranks == other.ranks and self.process_set_id == other.process_set_id
        )

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


def _members(ranks: Union[Iterable[int], Any]) -> List[int]:
    if hasattr(ranks, "Get_group"):
        ranks = _identity.places_of_communicator(ranks)
    try:
        return sorted(operator.index(rank) for rank in ranks)
    except TypeError:
        raise ValueError(f"A process set is made of the numbers of its ranks, not of {ranks!r}.") from None


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


class _Record:
    """A process set of the job, other than the set of all ranks."""

    def __init__(self, ranks: List[int], number: int) -> None:
        self.ranks = ranks
        self.number = number  # the id of the set; while the set is not registered, the id that it should get
        self.in_use: Optional[int] = None  # the id; 0 while the set has all ranks of the job
        self.objects: List[ProcessSet] = []
        # `restore` has registered the set again, but this rank's program (perhaps a new process) has not added it yet.
        self.is_carried_over = False
        self.is_missed = False  # some ranks of the set are missing
        # True if all ranks have known this set since the last `restore`. Until the next `restore`, adding or removing
        # the set is local to each rank, without a collective: new ranks do not repeat the calls of reset callbacks.
        self.is_restored = False
        self.is_removed = False  # this rank's program has removed the set

    def has(self, process_set: ProcessSet) -> bool:
        """Returns whether the program has added this very object, not only an equal one."""
        return any(each is process_set for each in self.objects)


_records: List[_Record] = []


def add_process_set(process_set: Union[ProcessSet, Iterable[int]]) -> ProcessSet:
    """Adds a set, given as a ProcessSet or by its ranks, and returns it. All ranks must call it.

    Raises ValueError on every rank for ranks that the job does not have, for a set that exists already, and when ranks
    add different sets. After a change of the ranks, a set of the earlier job is already registered: the first call
    returns it.
    """
    found = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if library().hvd_is_provisional():
        _ops.complete_init(False)  # the other ranks may have this set
    carried_over = _claim(found)
    if carried_over is not None:
        return found if found is process_set else carried_over
    process_set = found
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} is registered already.")
    _identity.rank()  # ValueError when not initialised
    note_registered(process_set, _add(process_set.ranks or []))
    return process_set


def _add(members: List[int]) -> int:
    ranks = (ctypes.c_int32 * len(members))(*members)
    return _ops.run(
        _ops.adopt(
            library().hvd_add_process_set,
            ctypes.addressof(ranks),
            len(ranks),
            finish=lambda handle: _ops.output(handle).process_set,
        )
    )


def _remove(number: int) -> None:
    _ops.run(_ops.adopt(library().hvd_remove_process_set, number, finish=lambda handle: None))


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set. All ranks must call it. Completes the set's work first.

    Returns False for a set that cannot be removed: the set of all ranks, or a set that was not added.
    """
    if not isinstance(process_set, ProcessSet):
        raise ValueError(_not_a_set(process_set))
    record = next((one for one in _records if one.has(process_set)), None)
    if record is None and process_set.process_set_id is not None:  # the argument may be a copy of the registered object
        record = next((one for one in _records if process_set in one.objects), None)
    if record is None or process_set is global_process_set:
        return False
    _ops.complete_delayed()
    if record.is_restored:
        record.is_removed = record.is_carried_over = True
    else:
        _remove(record.number)
        _records.remove(record)
    _forget(record)
    record.objects.clear()
    return True


def _forget(record: _Record) -> None:
    for process_set in record.objects:
        process_set.process_set_id = None
        process_set.__dict__.pop("_why_not", None)


def note_registered(process_set: ProcessSet, number: int) -> None:
    """Records the id that the runtime has given to the set."""
    record = _Record(process_set.ranks or [], number)
    record.objects.append(process_set)
    _records[:] = [one for one in _records if one.ranks != record.ranks] + [record]
    _begin(record, number)


def _begin(record: _Record, number: int) -> None:
    _ops.forget(number)
    record.number = number
    _use(record, number)


def _use(record: _Record, number: int) -> None:
    record.in_use, record.is_missed = number, False
    for process_set in record.objects:
        process_set.process_set_id = number
        process_set.__dict__.pop("_why_not", None)


def forget_all(keeps: bool = False) -> None:
    """Marks all sets as not added, after the runtime has ended. `keeps`: `restore` may follow."""
    for record in _records:
        _forget(record)
        record.objects = [each for each in record.objects if each.ranks == record.ranks]
    if not keeps:
        _records.clear()


def restore(broadcast: Callable[[Any], Any]) -> None:
    """Registers the sets that rank 0 has kept, if their ranks are present, under the same ids where possible. All ranks
    must call it, after `forget_all`. `broadcast`: copies rank 0's object to all ranks."""
    mine = {tuple(record.ranks): record for record in _records}
    known = broadcast([(record.ranks, record.number, record.is_missed) for record in _records if not record.is_removed])
    _records.clear()
    for ranks, number, is_missed in known:
        record = mine.get(tuple(ranks)) or _Record(ranks, number)
        record.number, record.is_missed = number, is_missed
        record.is_restored, record.is_carried_over, record.is_removed = True, True, False
        _records.append(record)
    size = _identity.size()
    fitting = sorted((record for record in _records if record.ranks[-1] < size), key=lambda record: record.number)
    for record in [one for one in fitting if len(one.ranks) == size]:
        _use(record, 0)  # the set of all ranks, which the runtime has already
        fitting.remove(record)
    # The runtime assigns the lowest free id, so temporary sets occupy the ids that must stay free.
    others, taken, last = _other_sets(size, [record.ranks for record in fitting]), [], 0
    for record in fitting:
        for ranks in itertools.islice(others, max(0, record.number - last - 1)):
            taken.append(_add(ranks))
            last = taken[-1]
        last = _add(record.ranks)
        _begin(record, last)
    for number in taken:
        _remove(number)
    _warn_missed([record for record in _records if record.ranks[-1] >= size], size)


def _other_sets(size: int, used: List[List[int]]) -> Iterator[List[int]]:
    for count in range(1, size):
        for ranks in map(list, itertools.combinations(range(size), count)):
            if ranks not in used:
                yield ranks


def _warn_missed(missed: List[_Record], size: int) -> None:
    new = [record for record in missed if not record.is_missed]
    for record in missed:
        record.is_missed = True
        for process_set in record.objects:
            process_set._why_not = _why_missed(size)
    if new and _identity.rank() == 0:
        words = ", ".join(f"{record.ranks} (id {record.number})" for record in new)
        warnings.warn(
            f"The job has {size} {'rank' if size == 1 else 'ranks'} now. These process sets cannot "
            f"be used until their ranks are back: {words}.",
            RuntimeWarning,
            stacklevel=2,
        )


def _why_missed(size: int) -> str:
    return (
        "cannot be used now: the job's ranks have changed, and it has "
        f"{'rank 0 alone' if size == 1 else f'ranks 0 to {size - 1}'}"
    )


def _claim(process_set: ProcessSet) -> Optional[ProcessSet]:
    """Returns the set of these ranks that `restore` has registered or skipped. Later calls return None."""
    for record in _records:
        is_its = process_set.process_set_id is None or record.has(process_set)
        if not record.is_carried_over or record.ranks != process_set.ranks or not is_its:
            continue
        record.is_carried_over = record.is_removed = False
        if not record.has(process_set):
            record.objects.append(process_set)
            if record.is_missed:
                process_set._why_not = _why_missed(_identity.size())
            else:
                process_set.process_set_id = record.in_use
        return record.objects[0]
    return None


def registered(number: int) -> ProcessSet:
    """Returns the set of an id. Raises ValueError if no set has this id."""
    for process_set in [global_process_set, *itertools.chain(*(one.objects for one in _records))]:
        if process_set.process_set_id == number:
            return process_set
    raise ValueError(f"No process set has the id {number}; hvd.add_process_set gives ids.")


def _not_a_set(found: Any) -> str:
    return f"process_set is {found!r}, a {type(found).__name__}; give what hvd.add_process_set returns."


def id_of(process_set: ProcessSet) -> int:
    """Returns the runtime's id of the set. Raises ValueError when the set was not added."""
    if not isinstance(process_set, ProcessSet):
        raise ValueError(_not_a_set(process_set))
    number = process_set.process_set_id
    if number is None:
        raise ValueError(f"{process_set} {process_set._why_not}.")
    return number
